"""What the benchmarks of this project alone share."""
