package prometheus

import (
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/quorumlock/quorumlock/internal/notice"
)

func TestMain(m *testing.M) {
	flag.Parse()
	for _, program := range []string{"prometheus", "promtool", "redis-server"} {
		if _, err := exec.LookPath(program); err != nil {
			os.Exit(notice.DidNotRun("TESTS OF THE ALERT RULES", program+" is not installed", "The rules and the dashboard were not checked",
				"QUORUMLOCK_REQUIRE_PROMETHEUS"))
		}
	}
	os.Exit(m.Run())
}
