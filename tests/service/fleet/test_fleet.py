"""Many logs: found, diagnosed by several processes or a real Ray cluster, resumed, summed up."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from oomdoc.fleet import Settings, run_fleet, summarise
from oomdoc.fleet.running import FIELDS, Log, diagnose_log, find_logs, read_rows
from oomkb.errors import InputError


@pytest.fixture
def logs(tmp_path: Path, root: Path) -> Path:
    folder = tmp_path / "logs"
    text = (root / "examples" / "dpo-v100" / "train.log").read_text()
    for team, name in (("vision", "a.log"), ("vision", "b.log"), ("speech", "c.log")):
        (folder / team).mkdir(parents=True, exist_ok=True)
        (folder / team / name).write_text(text)
    (folder / "speech" / "fine.log").write_text("step 100 loss 2.3\n" * 50)
    (folder / "speech" / "packed.log.gz").write_bytes(
        gzip.compress(b"bash: line 1: 4242 Killed\nexit code 137, OOMKilled: true")
    )
    (folder / "speech" / "binary.log").write_bytes(b"\x00\x01\x02\xff" * 1000)
    return folder


def test_a_fleet_on_several_processes(logs: Path, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    done: list[tuple[int, int]] = []
    count = run_fleet(
        [str(logs)], Settings(output, workers=2, team_pattern=r"logs/(\w+)/", plans=False), lambda *p: done.append(p)
    )
    assert count == 6
    assert done[-1] == (6, 6)
    summary = summarise(read_rows(output))
    assert summary["logs"] == 6
    assert summary["unreadable"] == 1
    assert summary["by_cause"]["logits"] == 3
    assert summary["by_team"]["vision"] == 2
    assert (summary["groups"][0]["count"], summary["groups"][0]["cause"]) == (3, "logits")
    assert summary["wasted_gib"] > 3 * 15


def test_a_run_that_was_cut_off_goes_on(logs: Path, tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    settings = Settings(output, workers=1, plans=False)
    assert run_fleet([str(logs / "vision")], settings) == 2
    with output.open("a") as file:
        file.write('{"log": "cut off in the mid')
        file.write("\n")
    assert run_fleet([str(logs / "vision"), str(logs / "speech" / "c.log")], settings) == 1
    (logs / "vision" / "a.log").write_text("CUDA out of memory. Tried to allocate 1.00 GiB")
    assert run_fleet([str(logs / "vision")], settings) == 1
    assert summarise(read_rows(output))["logs"] == 3


def test_rows_have_the_same_columns(logs: Path) -> None:
    assert all(tuple(diagnose_log(log)) == FIELDS for log in find_logs([str(logs)]))


def test_object_stores(root: Path, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/run1.log", (root / "examples" / "dpo-v100" / "train.log").read_bytes())
    found = list(find_logs(["memory://bucket/*.log"]))
    assert len(found) == 1
    assert diagnose_log(found[0], plans=False)["cause"] == "logits"
    memory.rm("/bucket", recursive=True)


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is there"):
        list(find_logs([str(tmp_path / "none*.log")]))


def test_one_bad_log_is_one_row(tmp_path: Path) -> None:
    row = diagnose_log(Log(str(tmp_path / "gone.log"), "0"))
    assert row["error"]
    assert json.dumps(row)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Ray cluster of two nodes on this machine, bound to the loopback; its processes end with the test."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # A socket's path is at most 107 characters, so the session lies in a short folder of its own.
    session = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    # Ray takes 127.0.0.1 for the address of a network card; the next one stays on the loopback.
    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "node_ip_address": "127.0.0.2"}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False, "temp_dir": session})
    try:
        cluster.add_node(**node)
        cluster.wait_for_nodes(timeout=40)
        ray.init(address=cluster.address, _node_ip_address="127.0.0.2", log_to_driver=False, configure_logging=False)
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(session, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_same_on_a_real_ray_cluster(two_nodes: str, logs: Path, tmp_path: Path) -> None:
    import ray

    assert len([n for n in ray.nodes() if n["Alive"]]) == 2
    output = tmp_path / "rows.jsonl"
    assert run_fleet([str(logs)], Settings(output, engine="ray", plans=False)) == 6
    summary = summarise(read_rows(output))
    assert (summary["logs"], summary["by_cause"]["logits"]) == (6, 3)
    assert run_fleet([str(logs)], Settings(output, engine="ray", plans=False)) == 0
