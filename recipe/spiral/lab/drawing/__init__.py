"""The table of a game as pages draw it: in replays, and where people play."""
