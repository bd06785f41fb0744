# SPDX-License-Identifier: Apache-2.0
# Image for cibuildwheel's Linux wheels: Debian 12 with GNUstep, and several Python versions in the folders that
# cibuildwheel expects. Not built yet: see "Not run yet" in CONTRIBUTING.md.
FROM python:3.10-bookworm AS cp310
FROM python:3.11-bookworm AS cp311
FROM python:3.12-bookworm AS cp312
FROM python:3.13-bookworm AS cp313
FROM python:3.14-bookworm AS cp314

FROM buildpack-deps:bookworm
# Keep apt's lists: tools/make_foundation.sh finds the source package in them.
RUN apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install \
      clang-19 libobjc-12-dev libgnustep-base-dev libblocksruntime-dev g++ \
      gobjc gnustep-make libffi-dev dpkg-dev make advancecomp
COPY --from=cp310 /usr/local /opt/python/cp310-cp310
COPY --from=cp311 /usr/local /opt/python/cp311-cp311
COPY --from=cp312 /usr/local /opt/python/cp312-cp312
COPY --from=cp313 /usr/local /opt/python/cp313-cp313
COPY --from=cp314 /usr/local /opt/python/cp314-cp314
# cp39-cp39 is the Python that cibuildwheel uses for its own programs.
RUN for python in /opt/python/*; do echo "$python/lib"; done > /etc/ld.so.conf.d/pythons.conf && ldconfig \
    && ln -s cp311-cp311 /opt/python/cp39-cp39
