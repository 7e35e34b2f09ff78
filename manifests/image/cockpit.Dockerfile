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

# What runs: the interpreter and its libraries, a shell and cockpit, without package managers.
RUN groupadd --gid 1000 cockpit && useradd --uid 1000 --gid 1000 --create-home cockpit \
 && mkdir /image && tar --create --one-file-system --directory / \
      --exclude=./image --exclude=./build --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' \
      --exclude='./tmp/*' --exclude='./root/*' --exclude='./var/cache/*' --exclude='./var/lib/*' --exclude='./var/log/*' \
      --exclude='./usr/share/doc*' --exclude='./usr/share/man' --exclude='./usr/share/info' \
      --exclude='./usr/share/locale' --exclude='./usr/share/perl*' --exclude='./usr/share/bash-completion' \
      --exclude='./usr/lib/apt' --exclude='./usr/lib/dpkg' --exclude='./usr/lib/*/perl*' --exclude='./usr/lib/*/gconv' \
      --exclude='./usr/lib/*/libapt*' --exclude='./usr/lib/systemd' --exclude='./usr/lib/udev' --exclude='./usr/bin/perl*' \
      --exclude='*/python3*/ensurepip' --exclude='*/python3*/idlelib' --exclude='*/python3*/lib2to3' \
      --exclude='*/python3*/test' --exclude='*/python3*/tkinter' --exclude='*/python3*/pydoc_data' --exclude='*/python3*/config-*' \
      --exclude='./usr/*/python3*/*-packages/*' --exclude='./usr/*/lib/python3*/*-packages/*' \
      --exclude='./usr/share/python-wheels' --exclude='*.opt-?.pyc' --exclude='*/site-packages/*/tests' . \
    | tar --extract --directory /image

FROM scratch
COPY --from=build /image /
COPY --from=build --chown=1000:1000 /home/cockpit /home/cockpit
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
