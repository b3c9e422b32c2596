"""Tasks that use the default database. A process knows them by TASK_MODULES."""

from django.db import connection

from django_delayq import RetryPolicy, current_job, delayed_task
from tests.sample_app.tasks import note_run

TWICE = RetryPolicy(max_attempts=2, base=0.01, cap=0.02)


def insert_row() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO seen VALUES (%s)", [current_job().attempt])


@delayed_task(retry=RetryPolicy(max_attempts=1_000, base=0.01, cap=0.05))
def see() -> None:
    """Insert a row."""
    note_run()
    insert_row()


@delayed_task(retry=RetryPolicy(max_attempts=5, base=0.01, cap=0.02))
def lose_connection() -> None:
    """Lose the connection in the first attempt; insert a row in the next."""
    note_run()
    if current_job().attempt == 1:
        connection.ensure_connection()
        connection.connection.close()
    insert_row()
