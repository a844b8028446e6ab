"""Topics: what there is to know about one concept of memory, in English and Chinese, with its sources.

``data/*.toml`` hold a table per topic; :mod:`oomkb.topics.records` describes its fields and checks them.
"""

from oomkb.topics.records import Shown, Topic, load_topics, topics

__all__ = ["Shown", "Topic", "load_topics", "topics"]
