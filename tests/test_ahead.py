"""A map over threads that keeps the order, and does not run far ahead."""

import subprocess
import sys
import threading
import time

import pytest

from posgeom.ahead import threads_ahead


@pytest.mark.parametrize("n", [0, 1, 3])
def test_results_come_in_the_order_of_the_jobs(n):
    def work(k):
        time.sleep(0.01 * (k % 3 == 0))
        return k * k

    with threads_ahead(n) as each:
        assert list(each(work, range(20))) == [k * k for k in range(20)]
        assert list(each(work, [])) == []


@pytest.mark.parametrize("n", [0, 1, 2])
def test_no_more_jobs_are_begun_than_threads_and_one(n):
    begun = []
    with threads_ahead(n) as each:
        results = each(lambda k: k, (begun.append(k) or k for k in range(20)))
        for taken in range(1, 10):
            next(results)
            assert len(begun) <= taken + n


def test_work_is_done_while_the_last_result_is_used():
    second = threading.Event()

    def work(k):
        if k == 1:
            second.set()
        return k

    with threads_ahead(1) as each:
        results = each(work, range(3))
        assert next(results) == 0
        assert second.wait(10)


def test_errors_come_with_their_job_and_no_thread_outlives_them():
    before = threading.active_count()
    with threads_ahead(2) as each:
        results = each(lambda k: 6 // k, [3, 2, 0, 1])
        assert [next(results), next(results)] == [2, 3]
        with pytest.raises(ZeroDivisionError):
            next(results)
    assert threading.active_count() == before


def test_errors_of_the_jobs_themselves_come_through():
    def jobs():
        yield 1
        raise ValueError("no second job")

    with pytest.raises(ValueError, match="no second job"), threads_ahead(1) as each:
        list(each(lambda k: k, jobs()))


def test_a_thread_that_outlives_the_main_one_does_the_work_itself():
    """The interpreter then begins no threads; those there are go on."""
    program = """
import threading
from posgeom.ahead import threads_ahead

def late():
    threading.main_thread().join()
    with threads_ahead(2) as each:
        print(list(each(lambda k: k * k, range(4))))

threading.Thread(target=late).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[0, 1, 4, 9]", "")
