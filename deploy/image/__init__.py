"""Makes the file system of the image: what deploy/Dockerfile runs while it builds."""
