"""The cache of lookup joins: how many answers, how long."""

from bicycle_sdk.joins.lookups import Answers


def test_answers_are_good_until_their_time_is_over():
    now = [0]
    answers = Answers(2, 10, clock=lambda: now[0])
    answers.keep("a", None)
    now[0] = 9
    assert answers.find("a") == (True, None)
    now[0] = 10
    assert answers.find("a") == (False, None)
    assert len(answers) == 0


def test_the_answer_that_was_not_used_for_longest_makes_room():
    answers = Answers(2, 10, clock=lambda: 0)
    answers.keep("a", 1)
    answers.keep("b", 2)
    answers.find("a")
    answers.keep("c", 3)

    assert [answers.find(key) for key in "abc"] == [(True, 1), (False, None), (True, 3)]


def test_a_cache_of_no_size_keeps_nothing():
    answers = Answers(0, 10)
    answers.keep("a", 1)

    assert answers.find("a") == (False, None)
