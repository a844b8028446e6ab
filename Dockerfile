# syntax=docker/dockerfile:1
# Three stages: the wheel, an environment with it, and what runs. No stage needs torch: the wheel brings the encoder and
# the index of the shipped cases ready made (.ci/hatch_build.py).

FROM python:3.12-slim AS wheel
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY .ci/hatch_build.py .ci/
COPY kb kb
COPY service service
COPY cases cases
RUN pip install --no-cache-dir -c constraints.txt \
      build faiss-cpu hatchling numpy onnx onnxruntime packaging pydantic pyyaml safetensors tokenizers \
 && python -m build --wheel --no-isolation --outdir /dist .

FROM python:3.12-slim AS installed
COPY service/deploy/requirements.txt /tmp/requirements.txt
COPY --from=wheel /dist /dist
RUN python -m venv /opt/oomdoc \
 && /opt/oomdoc/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt \
 && /opt/oomdoc/bin/pip install --no-cache-dir --no-deps --no-index /dist/oomdoc-*.whl \
 && /opt/oomdoc/bin/pip check \
 && if /opt/oomdoc/bin/python -c 'import torch' 2>/dev/null; then echo 'torch got in' >&2; exit 1; fi \
 && /opt/oomdoc/bin/pip inspect > /opt/oomdoc/installed-packages.json \
 && /opt/oomdoc/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/oomdoc/lib \
 && chmod -R a+rX,a-w /opt/oomdoc

FROM python:3.12-slim
LABEL org.opencontainers.image.title="oomdoc" \
      org.opencontainers.image.description="Why an LLM job ran out of memory, and what would fit" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 oomdoc \
 && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/oomdoc --shell /usr/sbin/nologin oomdoc \
 && install -d -o oomdoc -g oomdoc -m 0750 /var/lib/oomdoc
COPY --from=installed /opt/oomdoc /opt/oomdoc
# The root file system may be read-only: only the state (a volume) and /tmp are written.
ENV PATH=/opt/oomdoc/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/var/lib/oomdoc \
    OOMDOC_STATE=/var/lib/oomdoc
VOLUME ["/var/lib/oomdoc"]
USER 10001:10001
EXPOSE 8765
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8765/healthz', timeout=2).read()"]
CMD ["oomdoc", "serve", "--host", "0.0.0.0", "--port", "8765"]
