# tracker-health in an image of its own, for sweeps, gates and jobs of CI. Its default has no torch: reading
# checkpoints needs none.
#   docker build -t tracker-health:1 .
#   docker build -t tracker-health-torch:1 --target torch .
ARG BASE=python:3.13-slim

# hadolint ignore=DL3006  BASE has its tag
FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE CHANGELOG.md ./
COPY docs/*.schema.json docs/
COPY src src/
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# hadolint ignore=DL3006
FROM ${BASE} AS plain
ARG EXTRAS=charts,mlflow,wandb-server
COPY --from=build /wheels /wheels
# No version is pinned here: pyproject.toml declares the lowest, and constraints.txt those that were tried.
COPY constraints.txt /wheels/
RUN python -m pip install --no-cache-dir --constraint /wheels/constraints.txt "$(echo /wheels/*.whl)[${EXTRAS}]" \
    && useradd --create-home --uid 10001 tracker-health
USER 10001
WORKDIR /home/tracker-health
ENV MLFLOW_DISABLE_TELEMETRY=true
ENTRYPOINT ["tracker-health"]
CMD ["--help"]

# For trainings that watch their layers: https://download.pytorch.org/whl/cpu is an index of torch without CUDA.
FROM plain AS torch
ARG TORCH_INDEX=https://pypi.org/simple
USER 0
RUN python -m pip install --no-cache-dir --constraint /wheels/constraints.txt --extra-index-url "${TORCH_INDEX}" \
    "$(echo /wheels/*.whl)[torch]"
USER 10001

# The last stage is what a build without --target makes.
FROM plain
