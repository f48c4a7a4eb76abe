package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// output is the output of a process so far.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// commandOf returns the command line of a file in contrib/jobs, with another program after the --.
func commandOf(t *testing.T, file string, program ...string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../contrib/jobs", file))
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	if m := regexp.MustCompile(`(?m)^ +command: (\[.*\])$`).FindSubmatch(b); m != nil {
		if err := json.Unmarshal(m[1], &args); err != nil {
			t.Fatal(err)
		}
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
	worker := `trap 'echo draining; sleep 0.3; echo drained; exit 0' TERM; echo works; while :; do sleep 0.05; done`
	var out [2]output
	var pods [2]*exec.Cmd
	for i := range pods {
		pods[i] = command(nodes, commandOf(t, "deployment.yaml", "sh", "-c", worker)...)
		pods[i].Stdout, pods[i].Stderr = &out[i], os.Stderr
		if err := pods[i].Start(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			eventually(t, "the first works", func() bool { return out[0].String() == "works\n" })
		}
	}
	term := func(i int) {
		t.Helper()
		if err := pods[i].Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := pods[i].Wait(); err != nil {
			t.Errorf("pod %d: %v", i, err)
		}
		if got := out[i].String(); got != "works\ndraining\ndrained\n" {
			t.Errorf("pod %d has printed %q", i, got)
		}
	}
	term(0)
	eventually(t, "the second works", func() bool { return out[1].String() == "works\n" })
	term(1)
}
