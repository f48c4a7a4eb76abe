package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// commandOf returns the command line of a file in contrib/jobs, with another program after the --.
func commandOf(t *testing.T, file string, program ...string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../contrib/jobs", file))
	testkit.Must(t, err, "the file")
	var args []string
	if m := regexp.MustCompile(`(?m)^ +command: (\[.*\])$`).FindSubmatch(b); m != nil {
		testkit.Must(t, json.Unmarshal(m[1], &args), "the command of %s", file)
	} else if m := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindSubmatch(b); m != nil {
		args = strings.Fields(string(m[1]))
	}
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, "$(POD)", "worker-7") // as Kubernetes does
		if i > 0 && args[i-1] == "--wait" {
			args[i] = "2s" // instead of minutes
		}
	}
	own, _, dashes := split(args)
	if !dashes || filepath.Base(own[0]) != "quorumlock" {
		t.Fatalf("%s has the command %q", file, args)
	}
	return append(append(own[1:], "--"), program...)
}

// The command of the CronJob and of the systemd service runs a job once, and succeeds if another
// host has run it.
func TestTheFilesOfJobsRunAJobOnce(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"cronjob.yaml", "quorumlock-job.service"} {
		t.Run(file, func(t *testing.T) {
			_, nodes := startServers(t, 3)
			for i, want := range []string{"ran\n", "", ""} {
				out, err := command(nodes, commandOf(t, file, "echo", "ran")...).Output()
				if err != nil || string(out) != want {
					t.Errorf("run %d: %q, %v, want %q", i, out, err, want)
				}
			}
		})
	}
}

// Of two pods of the Deployment one works. At SIGTERM its command ends in its own time, and the
// other pod's takes over.
func TestTheDeploymentHandsOverAtSIGTERM(t *testing.T) {
	t.Parallel()
	_, nodes := startServers(t, 3)
	worker := `exec >out; trap 'echo draining; sleep 0.3; echo drained; exit 0' TERM; echo works; while :; do sleep 0.05; done`
	var pods [2]*running
	out := func(i int) string {
		text, _ := os.ReadFile(pods[i].Dir + "/out")
		return string(text)
	}
	works := func(i int) {
		t.Helper()
		eventually(t, "the pod works", func() bool { return out(i) == "works\n" })
	}
	for i := range pods {
		args := commandOf(t, "deployment.yaml", "sh", "-c", worker)
		pods[i] = newRun(t, nodes, args[1], args[2:]...)
		pods[i].ready = func() bool { return true }
		pods[i].start()
		works(0)
	}
	for i := range pods {
		works(i)
		pods[i].endBy(syscall.SIGTERM, 0)
		testkit.Equal(t, out(i), "works\ndraining\ndrained\n", "the output of pod %d", i)
	}
}
