# The checks of a change. They need only Go: no root, no Docker, no server. Without make, run the commands.

.PHONY: check race soak
check:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet work
	go test work

# One processor a package, because the race detector crashes on two: see internal/testkit/race.go.
race:
	GOMAXPROCS=1 go test -race -p 4 ./... ./proof/...

# Hours of faults on Redis in containers, with a report in soak.md. This needs Linux, Docker and a C compiler: see integration/doc.go.
FOR = 2h
soak:
	go test ./integration -run '^TestSoak$$' -soak $(FOR) -soak-seed 0 -soak-rest 20s -soak-report "$(CURDIR)/soak.md" -timeout 0 -v
