"""Drafts from past replies to similar prompts."""

from dataclasses import dataclass, field

from sglang_toolspec.runtime.drafters.history import SAME_PROMPT, WHOLE_AHEAD, HistoryDrafter
from sglang_toolspec.runtime.retrieval import Retrieval

END = 99


@dataclass(frozen=True)
class Reply:
    tokens: tuple[int, ...]


@dataclass
class Told:
    """A history of fixed neighbours."""

    neighbours: list = field(default_factory=list)
    credited: list = field(default_factory=list)
    kept: list = field(default_factory=list)

    def similar(self):
        return self.neighbours

    def credit(self, past, accepted):
        self.credited.append((past.tokens, accepted))

    def keep(self, tokens):
        self.kept.append(list(tokens))


def ended(reply):
    return bool(reply) and reply[-1] == END


def drafter(*neighbours, **options):
    told = Told([(Reply(tuple(tokens)), cosine) for tokens, cosine in neighbours])
    return HistoryDrafter(told, ended, Retrieval(**options)), told


def drafts(drafter):
    return [path.tokens for path in drafter.propose()]


def test_without_neighbours_there_is_no_draft():
    empty, _ = drafter()
    empty.commit([1])
    assert drafts(empty) == []


def test_the_whole_reply_to_a_similar_prompt_is_drafted_from_its_start():
    one, _ = drafter(([1, 2, 3, END], 0.9))
    one.commit([1])
    assert drafts(one) == [(2, 3, END)]


def test_a_reply_that_began_otherwise_is_no_whole_draft():
    one, _ = drafter(([1, 2, 3, END], 0.9))
    one.commit([5])
    assert drafts(one) == []


def test_the_most_similar_comes_first_and_is_the_likeliest():
    two, _ = drafter(([1, 2, 3, END], 0.9), ([1, 7, END], 0.8))
    two.commit([1])
    paths = two.propose()
    assert [path.tokens for path in paths] == [(2, 3, END), (7, END)]
    assert paths[0].weights[0] > paths[1].weights[0]


def test_the_same_prompt_is_surer_than_a_similar_one():
    def chance(cosine):
        one, _ = drafter(([1, 2, 3, END], cosine))
        one.commit([1])
        return one.propose()[0].weights[0]

    assert chance(1.0) > 0.9 > chance(SAME_PROMPT - 0.01)


def test_agreement_makes_surer():
    one, _ = drafter(([1, 2, 3, 4, 5, END], 0.9))
    one.commit([1])
    first = one.propose()[0].weights[0]
    one.commit([2, 3, 4])
    assert one.propose()[0].weights[0] > first


def test_after_a_difference_the_text_goes_on_where_it_stood_alike():
    one, _ = drafter(([1, 2, 3, 4, 5, 6, END], 0.9))
    one.commit([1, 9, 3, 4, 5])  # another second token, then three as before
    assert drafts(one) == [(6, END)]


def test_matches_that_are_too_short_are_not_continued():
    past = list(range(1, 60))

    def copied(match):
        one, _ = drafter((past, 0.9), suffixes=(5, 24), whole=False)
        one.commit(past[10 : 10 + match])
        return [len(path) for path in drafts(one)]

    assert [copied(n) for n in (4, 5, 7)] == [[], [32], [32]]


def test_better_matches_copy_more():
    long, short = list(range(1, 60)), [*range(100, 120), *range(6, 10), *range(200, 240)]
    two, _ = drafter((long, 0.8), (short, 0.9), whole=False)
    two.commit(list(range(2, 10)))
    assert drafts(two) == [tuple(range(10, 42)), tuple(range(200, 216))]


def test_from_the_longest_suffix_on_the_more_similar_prompt_decides():
    long, short = list(range(1, 60)), [*range(100, 120), *range(3, 10), *range(200, 240)]
    two, _ = drafter((short, 0.9), (long, 0.8), whole=False, suffixes=(3, 7))
    two.commit(list(range(2, 10)))
    assert drafts(two)[0] == tuple(range(200, 232))


def test_a_draft_ends_with_its_reply():
    two, _ = drafter(([1, 2, 3, 4, END], 0.9), ([11, 12, 13, 14, END], 0.8))
    two.commit([11, 0, 1, 2, 3])
    assert drafts(two) == [(4, END)]
    two.commit([9, 12, 13, 14])
    assert drafts(two) == [(END,)]


def test_drafts_are_few_and_short():
    many, _ = drafter(*(([1, *range(i, i + 300)], 0.9) for i in range(10)))
    many.commit([1])
    assert len(drafts(many)) == len(Retrieval().continuations)
    assert all(len(path) <= WHOLE_AHEAD for path in drafts(many))


def test_whoever_proposed_what_was_accepted_is_credited():
    two, told = drafter(([1, 2, 3, END], 0.9), ([1, 7, END], 0.8))
    two.commit([1])
    two.propose()
    two.commit([2, 3, 8])
    assert told.credited == [((1, 2, 3, END), 2), ((1, 7, END), 0)]
    two.commit([4])
    assert len(told.credited) == 2


def test_only_replies_that_are_complete_are_kept():
    for reply, kept in (([1, 2, END], [[1, 2, END]]), ([1, 2], []), ([], [])):
        one, told = drafter()
        if reply:
            one.commit(reply)
        one.close()
        assert told.kept == kept
