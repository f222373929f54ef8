# Greendot in a container: docs/deploy.md. It is built from this folder alone; nothing in it is secret.
#   docker build --tag greendot:0.1.0 .
#   docker buildx build --platform linux/amd64,linux/arm64 --tag greendot:0.1.0 .
# An exact version, so that two builds of a release have the same base. The tag of a version can still change: a release adds
# the digest of its base, as @sha256:…, and so can you.
ARG PYTHON=3.11.15
ARG DIGEST=

FROM python:${PYTHON}-slim-bookworm${DIGEST} AS build
# Such as otel, with commas between several. Each has a file in deploy/image.
ARG EXTRAS=
WORKDIR /build
# In an environment of its own, so that the last stage gets that folder and neither pip nor what pip left.
RUN python -m venv --without-pip /opt/greendot
# Exact versions with hashes (make lock-image), all as wheels: there is no compiler here, and none is wanted.
COPY deploy/image deploy/image
RUN pip install --no-cache-dir --disable-pip-version-check --no-compile --require-hashes --only-binary :all: \
        --requirement deploy/image/build.txt \
    && IFS=, && for lock in base ${EXTRAS}; do \
        pip --python /opt/greendot/bin/python install --no-cache-dir --disable-pip-version-check --no-compile \
            --require-hashes --only-binary :all: --requirement "deploy/image/${lock}.txt" || exit 1; \
    done
COPY pyproject.toml README.md LICENSE ./
COPY src src
# The wheel of this folder, which hadolint does not see:
# hadolint ignore=DL3013
RUN pip wheel --disable-pip-version-check --no-deps --no-index --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/greendot/bin/python install --no-cache-dir --disable-pip-version-check --no-compile \
        --no-deps --no-index dist/*.whl \
    && /opt/greendot/bin/python -m compileall -q -j 0 /opt/greendot/lib \
    && /opt/greendot/bin/greendot version

FROM python:${PYTHON}-slim-bookworm${DIGEST}
ARG PYTHON
ARG DIGEST
LABEL org.opencontainers.image.title="Greendot" \
      org.opencontainers.image.description="Self-hosted real-time server for presence, typing indicators, rooms and a durable notification inbox." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="python:${PYTHON}-slim-bookworm${DIGEST}"
# A number, so that Kubernetes can see that it is not root; the folder is there for SQLite, where that is the store.
RUN install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/greendot
COPY --from=build /opt/greendot /opt/greendot
# DEV_HOST is for `docker run -p 8000:8000 … --dev`: the loopback of a container cannot be reached from outside. The demo then requires
# a gate token, which the server prints.
ENV PATH=/opt/greendot/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GREENDOT_SERVER_DATA_DIR=/var/lib/greendot \
    GREENDOT_SERVER_DEV_HOST=0.0.0.0
USER 10001:10001
WORKDIR /var/lib/greendot
VOLUME /var/lib/greendot
EXPOSE 8000
# SIGTERM starts a drain. Allow server.drain_notice_s + server.drain_s + 10 s before the container is killed.
STOPSIGNAL SIGTERM
# Alive, not ready: while Redis is away it is not ready, and killing it would only lose the sockets it holds.
HEALTHCHECK --interval=30s --timeout=10s --start-period=20s --retries=3 CMD ["greendot", "health"]
ENTRYPOINT ["greendot"]
CMD ["serve"]
