# Sourced with the seconds after which a command is stopped: sets `limit`. The shell's value wins over .env's, as everywhere.
limit=${SPIRAL_TIME_LIMIT:-$(sed -n 's/^SPIRAL_TIME_LIMIT=//p' .env 2>/dev/null || true)}
limit=${limit:-$1}
if [[ ! $limit =~ ^[0-9]+[smhd]?$ ]]; then
    echo "${0##*/}: SPIRAL_TIME_LIMIT=$limit: must be seconds, such as 3600, or 90m or 2h; 0 for no limit" >&2
    exit 2
fi
