"""What `demo.py` needs: child processes, a scenario, the console, and the judge of what happened."""
