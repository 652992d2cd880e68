# The server, with a folder for the log that belongs to its user.

# A mirror, or an image by its digest, fits as well.
ARG NATS_IMAGE=nats:2.15-alpine

FROM ${NATS_IMAGE}
# A new volume that is mounted here takes its owner from the folder.
RUN mkdir /data && chown 10001:10001 /data
USER 10001:10001
