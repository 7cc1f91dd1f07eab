# The app for everybody who is not on a Space:
#   docker build -t qalign . && docker run -p 7860:7860 -v qalign-cache:/home/user/.cache qalign
FROM python:3.11-slim

# as a Space does it: a user of its own, who can write to a home and nowhere else
RUN useradd --create-home --uid 1000 user
USER user
WORKDIR /home/user/app
ENV PATH=/home/user/.local/bin:$PATH \
    HF_HOME=/home/user/.cache/huggingface \
    GRADIO_TEMP_DIR=/tmp/gradio \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_ANALYTICS_ENABLED=False \
    MALLOC_ARENA_MAX=2 \
    OMP_NUM_THREADS=1

# torch comes with 3.5 GB for NVIDIA GPUs; without one, an index that has it for the CPU saves them:
#   --build-arg PIP_EXTRA_INDEX_URL=ADDRESS
ARG PIP_EXTRA_INDEX_URL
COPY --chown=user requirements.txt .
RUN python -m pip install --no-cache-dir --user -r requirements.txt
COPY --chown=user . .

EXPOSE 7860
CMD ["python", "app.py"]
