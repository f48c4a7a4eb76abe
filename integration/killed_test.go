//go:build unix

package integration

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// A run that is killed cannot end its servers itself.
func TestServersOfARunThatIsKilledAreRemoved(t *testing.T) {
	needServers(t)
	c := startChild(t, "abandon "+image)
	var id string
	c.says(t, "started", &id)
	t.Cleanup(func() {
		_, _ = docker.ContainerRemove(patiently(t), id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	})
	must(t, c.cmd.Process.Kill())
	eventually(t, patience, "the container is gone", func() bool {
		_, err := docker.ContainerInspect(patiently(t), id, client.ContainerInspectOptions{})
		return errdefs.IsNotFound(err)
	})
}
