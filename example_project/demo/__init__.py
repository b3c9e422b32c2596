"""The parts of `demo.py`: its processes, its scenario, the console, and the checker of what happened."""
