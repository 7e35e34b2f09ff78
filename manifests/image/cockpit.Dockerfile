# The image of cockpit itself, for a pod of a team or the nightly game day. Build it with
# ./build.sh cockpit, which makes the build context.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
COPY . /build
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --no-compile -q -c /build/constraints.txt /build \
 && /opt/venv/bin/python /build/sbom.py cockpit > /opt/venv/sbom.spdx.json \
 && /opt/venv/bin/pip uninstall -qy pip setuptools \
 && python3 -m compileall -q -x '/tests?/' /opt/venv/lib

FROM ${BASE}
RUN groupadd --gid 1000 cockpit && useradd --uid 1000 --gid 1000 --create-home cockpit
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title=cockpit \
      org.opencontainers.image.description="A terminal UI for distributed training on Ray" \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION}
USER 1000:1000
WORKDIR /home/cockpit
ENTRYPOINT ["cockpit"]
