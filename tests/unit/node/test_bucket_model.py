"""Dictionary in buckets: entries come and go between the steps of a pass."""

from __future__ import annotations

from greendot.node.bucket_model import BUCKETS, BucketDict


def filled(count: int) -> BucketDict[int, str]:
    table = BucketDict[int, str]()
    for number in range(count):
        table[number] = f"v{number}"
    return table


def test_entries_are_found_replaced_and_removed() -> None:
    table = filled(2)
    table[1] = "other"
    assert (table.get(0), table.get(1), table.get(2)) == ("v0", "other", None)
    assert (0 in table, 2 in table, len(table)) == (True, False, 2)
    assert (table.pop(0), table.pop(0), len(table)) == ("v0", None, 1)
    table.clear()
    assert (len(table), table.get(1)) == (0, None)


def test_equal_keys_are_one_entry_whatever_their_type() -> None:
    table = BucketDict[float, str]()
    table[1] = "a"
    table[1.0] = "b"
    assert (len(table), table.get(True)) == (1, "b")


def test_a_pass_visits_every_entry_once_in_steps_of_some_size() -> None:
    steps = [*filled(1_000).steps(100)]
    assert all(len(step) >= 100 for step in steps[:-1])
    assert all(len(step) < 100 + -(-1_000 // BUCKETS) for step in steps)
    assert sorted(pair for step in steps for pair in step) == [(number, f"v{number}") for number in range(1_000)]
    assert [*BucketDict[int, int]().steps(100)] == []


def test_few_entries_are_one_step_and_an_exact_number_leaves_no_empty_one() -> None:
    assert [len(step) for step in filled(5).steps(100)] == [5]
    assert [len(step) for step in filled(BUCKETS).steps(BUCKETS)] == [BUCKETS]


def test_entries_that_stay_are_visited_while_others_come_and_go() -> None:
    table, visited = filled(1_000), list[int]()
    for number, step in enumerate(table.steps(50)):
        visited += [key for key, _ in step]
        for key in range(number * 40, number * 40 + 40):
            table.pop(key * 2)  # even ones go
            table[100_001 + key * 2] = "new"  # and odd ones come
    assert len(visited) == len({*visited})
    assert {*range(1, 1_000, 2)} <= {*visited}
