package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
)

// runLabel is the label of every container, and thisRun its value for those of this process.
const runLabel = "quorumlock.run"

var thisRun = rand.Text()

// startReaper starts a process that removes this run's containers when this process ends, even if
// it is killed. stop makes it do so now. (A container that does the same would need its own image.)
func startReaper() (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	reaper := exec.Command(self) // its output goes nowhere: the go command would wait for its end
	reaper.Env = append(os.Environ(), role+"=reap "+thisRun)
	alive, err := reaper.StdinPipe() // which is closed when this process ends
	if err != nil {
		return nil, err
	}
	if err := reaper.Start(); err != nil {
		return nil, err
	}
	return func() error {
		_ = alive.Close()
		return reaper.Wait()
	}, nil
}

// reap is the whole of such a process, for the containers with this value of the label.
func reap(run string) error {
	// At a terminal, all processes get them.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := connect(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for { // until none is left: one may have been under way
		left, err := docker.ContainerList(ctx, client.ContainerListOptions{
			All: true, Filters: make(client.Filters).Add("label", runLabel+"="+run)})
		if err != nil || len(left.Items) == 0 {
			return err
		}
		for _, c := range left.Items {
			// One that another process is removing is gone at the next look.
			_, _ = docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	}
}

// abandon is the whole of a process that starts a server of that image, reports it, and waits to be
// killed.
func abandon(ofImage string) error {
	image = ofImage
	if err := connect(); err != nil {
		return err
	}
	stop, err := startReaper()
	if err != nil {
		return err
	}
	defer stop() //nolint:errcheck // it does not come to that
	s, err := launch(&redis.Options{}, nil)
	if err != nil {
		return err
	}
	fmt.Println("started", s.id)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
