package planted

import (
	"testing"

	"github.com/quorumlock/quorumlock/proof/mutation"
)

// The share of noticed mutations may not fall, file by file. Each command begins with go test
// ./proof/planted -run Mutations/core:
//
//	-mutations all -v -timeout 100m    lists the survivors
//	-mutations wait.go -v              the survivors of one file
//	-mutations all -scores             writes the scores into proof/mutation/scores.txt
func TestMutationsAreNoticed(t *testing.T) {
	mutation.SkipUnlessAsked(t)
	for name, m := range map[string]mutation.Mutations{
		"core": {Of: "internal/core", By: []mutation.Proof{tests("internal/core", "."), core(5000),
			tests("redlock/internal/tests/hold", "Attach|Detach|Text|AHold|AQuorum|Away|Park|OwnCell")}},
		"wire": {Of: "internal/wire", By: []mutation.Proof{core(1000), tests("internal/wire", "."), tests("scripts", "."), wire(200),
			tests("node", "."), tests("redlock/internal/tests/kinds", "."), tests("redlock", "Ready|Diagnose|Guard")}},
		"engine": {Of: "internal/engine", By: []mutation.Proof{tests("internal/engine", "."), core(5000),
			tests("internal/client", "."), tests("redlock/internal/tests/kinds", "Latch"), wire(200), tests("proof/redisson", ".")}},
		"shell":     {Of: "internal/client", Except: []string{"boottime_linux.go", "boottime_other.go"}, By: append([]mutation.Proof{wire(200), tests("internal/client", "."), tests("redlock", ".")}, ofRedlock()...)},
		"transport": {Of: "internal/transport", By: []mutation.Proof{wire(100), tests("node", "."), tests("internal/transport", ".")}},
	} {
		t.Run(name, func(t *testing.T) { m.Score(t) })
	}
}

// ofRedlock are the tests of package redlock that are packages by subject.
func ofRedlock() (all []mutation.Proof) {
	for _, subject := range []string{"hold", "sick", "kinds", "queue", "names", "token", "forgery", "crowd"} {
		all = append(all, tests("redlock/internal/tests/"+subject, "."))
	}
	return all
}
