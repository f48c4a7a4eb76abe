# What a contributor runs. It needs Go alone: no root, no Docker, no server. Without make, run the commands.

.PHONY: check race
check:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet work
	go test work

# One processor a package: see internal/locktest/race.go.
race:
	GOMAXPROCS=1 go test -race -p 4 ./...
