# The checks of a change. They need only Go: no root, no Docker, no server. Without make, run the commands.

.PHONY: check race
check:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet work
	go test work

# One processor a package, because the race detector crashes on two: see internal/testkit/race.go.
race:
	GOMAXPROCS=1 go test -race -p 4 ./... ./proof/...
