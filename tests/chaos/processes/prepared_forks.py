"""Prepared forks: the forkserver of process runs imports this last, before it forks."""

from tests.warm_process import prepare_forks

prepare_forks()
