# The tool alone, for quorumlock run in other images, serve and check. The context has the static binary and the certificates of
# authorities for rediss://; CONTRIBUTING.md says how they get there.
FROM scratch
COPY ca-certificates.crt /etc/ssl/certs/
COPY quorumlock /
USER 65532:65532
ENTRYPOINT ["/quorumlock"]
