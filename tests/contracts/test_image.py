"""The image, the manifests and the workflow: read as a builder would, and the workflow's steps run."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

Stage = list[tuple[str, str]]


@pytest.fixture(scope="module")
def stages(root: Path) -> dict[str, Stage]:
    """Stage -> its instructions, continuation lines joined."""
    lines = [line for line in (root / "Dockerfile").read_text("utf-8").split("\n") if not line.startswith("#")]
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n", "", "\n".join(lines)).split("\n"):
        if not line.strip():
            continue
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            stage = rest.split(" AS ")[1] if " AS " in rest else "final"
            found[stage] = []
        found[stage].append((name, rest))
    return found


def test_the_dockerfile_passes_the_linter(root: Path, tmp_path: Path) -> None:
    linter = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([linter, root / "Dockerfile"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    # The linter looks: a file with a known fault is refused.
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN cd /tmp && sudo ls\n")
    assert subprocess.run([linter, tmp_path / "Dockerfile"], capture_output=True, check=False).returncode == 1


def of(stage: Stage, name: str) -> list[str]:
    return [rest for instruction, rest in stage if instruction == name]


def test_the_last_stage_only_runs(stages: dict[str, Stage]) -> None:
    assert list(stages) == ["wheel", "installed", "final"]
    final = stages["final"]
    assert final[0][1] == "python:3.12-slim"
    assert not [run for run in of(final, "RUN") if "pip" in run or "apt" in run]
    assert all(copy.startswith("--from=installed ") for copy in of(final, "COPY"))
    assert of(final, "USER") == ["10001:10001"]
    assert final.index(("USER", "10001:10001")) > max(i for i, (name, _) in enumerate(final) if name in ("RUN", "COPY"))
    [check] = of(final, "HEALTHCHECK")
    assert "/healthz" in check
    [command] = [json.loads(c) for c in of(final, "CMD")]
    assert command[:2] == ["oomdoc", "serve"]
    assert command[command.index("--host") + 1] == "0.0.0.0"
    port = command[command.index("--port") + 1]
    assert of(final, "EXPOSE") == [port]
    assert f":{port}/healthz" in check


def test_no_torch_and_every_install_is_pinned(stages: dict[str, Stage]) -> None:
    installs = [
        part for s in stages.values() for run in of(s, "RUN") for part in run.split("&&") if "pip install" in part
    ]
    assert installs
    for install in installs:
        assert "-c " in install or "--require-hashes" in install or "--no-index" in install
        assert "torch" not in install
        assert "embed" not in install
    assert any("import torch" in run and "exit 1" in run for run in of(stages["installed"], "RUN"))


def test_the_state_is_a_volume(stages: dict[str, Stage]) -> None:
    [state] = re.findall(r"OOMDOC_STATE=(\S+)", " ".join(of(stages["final"], "ENV")))
    assert [state] == json.loads(of(stages["final"], "VOLUME")[0])


def test_the_image_installs_what_the_project_asks_for_by_hash(root: Path) -> None:
    """The lock holds every package of the image's extras at the pinned version, each with hashes, and no torch."""
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras = ("serve", "postgres", "bots", "mcp")
    asked = [*project["dependencies"], *(line for e in extras for line in project["optional-dependencies"][e])]
    lock = re.sub(r"\\\n", "", (root / "service/deploy/requirements.txt").read_text("utf-8"))
    locked = {}
    for line in lock.split("\n"):
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.partition("==")
            locked[canonicalize_name(re.sub(r"\[.*", "", name))] = rest.split()[0]
            assert "--hash=sha256:" in rest, name
    pins = dict(line.split("==") for line in (root / "constraints.txt").read_text("utf-8").split() if "==" in line)
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in map(Requirement, asked):
        assert canonicalize_name(requirement.name) in locked, requirement
    assert {name: version for name, version in locked.items() if name in pinned and pinned[name] != version} == {}
    assert "torch" not in locked
    assert "sentence-transformers" not in locked


def test_every_copied_file_is_there_and_sent_to_the_builder(root: Path, stages: dict[str, Stage]) -> None:
    rules = [r for r in (root / ".dockerignore").read_text("utf-8").split("\n") if r and not r.startswith("#")]
    assert rules[0] == "*"
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    sources = [
        source
        for stage in stages.values()
        for copy in of(stage, "COPY")
        if not copy.startswith("--from=")
        for source in copy.split()[:-1]
    ]
    assert sources
    for source in sources:
        assert (root / source).exists(), source
        assert source in kept, f"{source} is kept from the builder"
    for secret in (".env", ".git", ".venv", "dist"):
        assert not any(fnmatch.fnmatch(secret, k) for k in kept)


def test_what_the_wheel_needs_is_copied(root: Path, stages: dict[str, Stage]) -> None:
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {p.split("/")[0] for p in (*wheel["packages"], *wheel["force-include"])}
    needed |= {project["project"]["readme"], *project["project"]["license-files"]}
    copied = {source for copy in of(stages["wheel"], "COPY") for source in copy.split()[:-1]}
    assert needed <= copied


def test_the_compose_file(root: Path) -> None:
    document = yaml.safe_load((root / "service/deploy/compose.yaml").read_text("utf-8"))
    service, database = document["services"]["oomdoc"], document["services"]["db"]
    assert (root / "service/deploy" / service["build"]["context"]).resolve() == root
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["environment"]["OOMDOC_DATABASE_URL"].startswith("postgresql://")
    assert service["environment"]["OOMDOC_AUTH"] == "required"
    assert service["depends_on"]["db"]["condition"] == "service_healthy"
    assert "pg_isready" in database["healthcheck"]["test"][1]
    assert {v.split(":")[0] for s in (service, database) for v in s["volumes"]} == set(document["volumes"])
    # No secret has a default.
    assert all("${" not in str(v) or ":?" in str(v) for s in (service, database) for v in s["environment"].values())


def test_the_settings_named_in_the_manifests_exist(root: Path) -> None:
    from oomdoc.settings import Settings

    known = {f"OOMDOC_{name.upper()}" for name in Settings.model_fields} | {"OOMDOC_STATE", "OOMDOC_BAKED"}
    for path in (root / "Dockerfile", *sorted((root / "service/deploy").iterdir())):
        named = set(re.findall(r"\bOOMDOC_[A-Z_]{2,60}\b", path.read_text("utf-8")))
        assert {n for n in named - {"OOMDOC_DB_PASSWORD"} if not n.endswith("_")} <= known, path


def test_the_kubernetes_manifest_follows_the_schemas(root: Path) -> None:
    import kubernetes_validate

    documents = list(yaml.safe_load_all((root / "service/deploy/kubernetes.yaml").read_text("utf-8")))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    documents[0]["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(documents[0], kubernetes_validate.latest_version(), strict=True)


def test_the_kubernetes_manifest(root: Path, stages: dict[str, Stage]) -> None:
    documents = list(yaml.safe_load_all((root / "service/deploy/kubernetes.yaml").read_text("utf-8")))
    deployment, service, budget, network = documents
    assert [d["kind"] for d in documents] == ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"]
    # What is not listed is closed, both ways; a key that annotations cannot carry is not asked for by them.
    assert network["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert network["spec"]["podSelector"] == {"matchLabels": service["spec"]["selector"]}
    assert "prometheus.io" not in json.dumps(deployment["spec"]["template"]["metadata"])
    assert deployment["spec"]["replicas"] == 2
    pod = deployment["spec"]["template"]["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (deployment["spec"]["selector"]["matchLabels"], service["spec"]["selector"]):
        assert selector.items() <= labels.items()
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    user = of(stages["final"], "USER")[0].split(":")[0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert str(pod["securityContext"]["runAsUser"]) == user
    [container] = pod["containers"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"]["drop"] == ["ALL"]
    paths = {p: container[p]["httpGet"]["path"] for p in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert str(container["ports"][0]["containerPort"]) == of(stages["final"], "EXPOSE")[0]
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    mounted = {m["mountPath"] for m in container["volumeMounts"]}
    assert mounted >= {json.loads(of(stages["final"], "VOLUME")[0])[0], "/tmp"}
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}


@pytest.fixture(scope="module")
def workflow(root: Path) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load((root / "service/deploy/github-action.yml").read_text("utf-8"))
    return loaded


def steps(workflow: dict[Any, Any]) -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in workflow["jobs"]["diagnose"]["steps"]}


def test_the_workflow_puts_nothing_of_the_issue_into_a_shell(workflow: dict[Any, Any]) -> None:
    assert workflow["permissions"] == {"issues": "write"}
    assert workflow[True] == {"issues": {"types": ["labeled"]}}
    for step in steps(workflow).values():
        assert "${{" not in step.get("run", ""), step["name"]
        assert all("github.event.issue" not in str(v) for v in step.get("env", {}).values())
    assert "label.name == 'OOM'" in workflow["jobs"]["diagnose"]["if"]


NASTY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. $(touch pwned) `touch pwned` '; touch pwned; # @everyone ${{ github.token }}"


class FakeGitHub:
    """The comments of one issue."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self, status: int, document: Any) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _known(self) -> bool:
                right = self.path.startswith("/repos/o/r/issues/7/comments")
                if not right or self.headers["authorization"] != "Bearer token-1":
                    self._answer(404, {})
                    return False
                return True

            def do_GET(self) -> None:
                if self._known():
                    page = int(re.findall(r"&page=(\d+)", self.path)[0])
                    self._answer(200, fake.comments[100 * (page - 1) : 100 * page])

            def do_POST(self) -> None:
                if self._known():
                    body = json.loads(self.rfile.read(int(self.headers["content-length"])))["body"]
                    fake.comments.append({"body": body, "user": {"type": "Bot"}})
                    self._answer(201, {})

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    made = FakeGitHub()
    yield made
    made.server.shutdown()
    made.server.server_close()


def perform(step: dict[str, Any], folder: Path, github: FakeGitHub, issue: dict[str, Any]) -> str:
    """Run a step's script as the runner does; what it wrote to the output file."""
    (folder / "event.json").write_text(json.dumps({"issue": issue}), "utf-8")
    output = folder / "output"
    output.write_text("", "utf-8")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_API_URL": github.url,
        "GITHUB_REPOSITORY": "o/r",
        "RUNNER_TEMP": str(folder),
        "GH_TOKEN": "token-1",
    }
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return output.read_text("utf-8")


def test_an_issue_is_answered_once(workflow: dict[Any, Any], github: FakeGitHub, tmp_path: Path) -> None:
    if not (Path(sys.executable).parent / "oomdoc").exists():
        pytest.skip("oomdoc is not installed as a command here")
    issue = {"number": 7, "title": "OOM @all $(touch pwned)", "body": NASTY}
    diagnose, comment = steps(workflow)["Diagnose"], steps(workflow)["Comment once"]
    assert perform(diagnose, tmp_path, github, issue) == "status=0\n"
    # Somebody pasted the mark; that is no answer yet. The answer may also be on a later page.
    github.comments += [{"body": "<!-- oomdoc: automated answer -->", "user": {"type": "User"}}] * 120
    for _ in range(2):
        perform(comment, tmp_path, github, issue)
        assert len(github.comments) == 121
    body = github.comments[-1]["body"]
    assert "automated" in body
    assert "GiB" in body
    assert not re.search(r"@\w", body)
    assert len(body) <= 65_536
    assert not (tmp_path / "pwned").exists()
    nothing = {"number": 7, "title": "Typo in the docs", "body": None}
    assert perform(diagnose, tmp_path, github, nothing) == "status=1\n"
