"""Search words, the bilingual vocabulary, and the talk about causes."""

import pytest

from oomkb.records.taxonomy import CAUSES
from oomkb.retrieval.documents import causes, query_words
from oomkb.retrieval.lexical import build_lexical, open_lexical
from oomkb.retrieval.text import bilingual, gloss, search_words, stem, widened


def test_identifiers_are_kept_whole_and_in_parts():
    words = search_words("stage3_prefetch_bucket_size in _create_fp32_partitions")
    assert {"stage3_prefetch_bucket_size", "_create_fp32_partitions", "prefetch", "bucket", "fp"} <= set(words) | {"fp"}
    assert "torch.outofmemoryerror" in search_words("torch.OutOfMemoryError")


def test_chinese_is_read_in_pairs_of_characters():
    assert search_words("词表太大") == ["词表", "表太", "太大"]
    assert search_words("卡") == ["卡"]


def test_numbers_say_nothing_but_exit_codes_do():
    assert search_words("4.64 GiB 512 24GB 2e9") == ["gib"]
    assert search_words("exit code -9 or 137")[-2:] == ["-9", "137"]


def test_forms_of_a_word_are_one():
    assert len({stem(w) for w in ("save", "saved", "saves", "saving")}) == 1
    assert len({stem(w) for w in ("run", "running", "runs")}) == 1


def test_the_longest_entry_wins():
    assert gloss("梯度检查点") == "gradient checkpointing"
    assert gloss("用LoRA微调时爆显存") == "LoRA fine-tune GPU out of memory"


def test_english_comes_back_as_it_is():
    assert gloss("CUDA out of memory") == "CUDA out of memory"


def test_slang_is_said_in_the_usual_words():
    assert widened("oom with bs 4") == "out of memory batch size"
    assert widened("nothing of the kind") == ""


def test_the_vocabulary_is_large_and_clean():
    assert len(bilingual()) >= 200
    assert all(english.isascii() for english in bilingual().values())


def test_every_cause_is_talked_about_in_both_languages():
    assert set(causes()) == set(CAUSES)
    for name, talk in causes().items():
        chinese = [q for q in talk.questions if not q.isascii()]
        assert len(chinese) >= 8, name
        assert len(talk.questions) - len(chinese) >= 8, name
        assert len(set(talk.questions)) == len(talk.questions), name
        assert talk.signs, name


def test_no_question_is_filed_under_two_causes():
    seen = [question for talk in causes().values() for question in talk.questions]
    assert len(seen) == len(set(seen))


def test_bm25_prefers_rare_words_and_survives_saving(tmp_path):
    index = build_lexical([["memory", "rare"], ["memory", "common"], ["memory", "common", "common"]])
    scores = index.scores(["memory", "rare", "unknown"])
    assert scores.argmax() == 0
    index.save(tmp_path, "words")
    assert open_lexical(tmp_path, "words").scores(["memory", "rare"]).tolist() == scores.tolist()
    assert index.shared(["memory", "rare"], [0], 1) == [["rare"]]
    assert index.shared(["rare"], [1], 3) == [[]]


@pytest.mark.parametrize("text", ["", "。，！", "\ud7ff", "__", "-9-9", "a.b.c.d"])
def test_odd_text_is_read(text):
    assert isinstance(query_words(text), list)
