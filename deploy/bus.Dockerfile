# The server, with a folder for the log that belongs to its user, and a check whether it stores.

# A mirror, or an image by its digest, fits as well.
ARG NATS_IMAGE=nats:2.15-alpine

FROM ${NATS_IMAGE}
# A new volume that is mounted here takes its owner from the folder.
RUN mkdir /data && chown 10001:10001 /data
COPY bus.sh /bus.sh
USER 10001:10001
ENTRYPOINT ["/bin/sh", "/bus.sh"]
# All of it: with a full disk, JetStream is enabled and stores nothing. It may read a long log before it
# listens. The configuration has to have `http: "0.0.0.0:8222"`, as nats.conf and cluster.conf do.
HEALTHCHECK --interval=2s --timeout=2s --start-period=120s --retries=15 \
    CMD ["wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8222/healthz"]
LABEL org.opencontainers.image.title="nodepool-bus" \
    org.opencontainers.image.description="nats-server with a volume for the log of nodepool." \
    org.opencontainers.image.licenses="Apache-2.0"
