# syntax=docker/dockerfile:1
# The service: one static binary, run by a user that owns nothing. The target upstream is for docker-compose.yml only.

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/envoy-rls ./cmd/envoy-rls
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    cd e2e && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o /out/upstream ./cmd/upstream
RUN mkdir /out/state

FROM scratch AS upstream
COPY --from=build /out/upstream /upstream
USER 65532:65532
ENTRYPOINT ["/upstream"]

# The last stage is what `docker build .` makes.
FROM scratch
COPY --from=build /out/envoy-rls /envoy-rls
COPY config/policies.yaml /etc/envoy-rls/policies.yaml
# Where --policy-kept-file points to: mount a volume there to start without the policy database after the container is gone.
COPY --from=build --chown=65532:65532 /out/state /var/lib/envoy-rls
ENV ENVOY_RLS_POLICIES=/etc/envoy-rls/policies.yaml
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/envoy-rls"]
CMD ["serve"]
