"""Tries this project on a machine's GPUs, part by part: ``python -m benchmarks.gpu_check``, run_scripts/gpu_check.sh.

Each part is a stage: a program of its own with a limit of time. Its checks and figures come into one folder, with a
page for people and a JSON file, without keys and users' paths. The same stages run on a CPU (``--device cpu``), with
smaller sizes. That is how they are tested, so that on a GPU only the device is new.
"""
