"""Questions about a server, asked more often than they are worth."""

import itertools

from qanat.serving.ready_answers import ReadyAnswers


def test_an_answer_is_given_again_for_twenty_times_as_long_as_it_took() -> None:
    now = [0.0]
    made = itertools.count()

    def tell() -> object:
        now[0] += 0.01
        return {"made": next(made)}

    answers = ReadyAnswers(lambda: now[0])
    assert answers.get("status", tell) == b'{"made":0}'
    now[0] += 0.19
    assert answers.get("status", tell) == b'{"made":0}'
    assert answers.get("streams", tell) == b'{"made":1}', "another question"
    now[0] += 0.02
    assert answers.get("status", tell) == b'{"made":2}'
    assert next(made) == 3


def test_at_most_a_twentieth_of_the_time_goes_into_answers() -> None:
    now, spent = [0.0], [0.0]

    def tell() -> object:
        now[0] += 0.01
        spent[0] += 0.01
        return 1

    answers = ReadyAnswers(lambda: now[0])
    for _ in range(100_000):
        now[0] += 0.0001
        answers.get("status", tell)
    assert spent[0] < 0.06 * now[0]
