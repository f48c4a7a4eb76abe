// Package lockcontainers starts three Redis nodes in containers, for tests with testcontainers
// (github.com/testcontainers/testcontainers-go).
//
//	nodes, err := lockcontainers.Run(ctx, "redis:8")
//	testcontainers.CleanupContainer(t, nodes)
//	...
//	urls, err := nodes.ConnectionStrings(ctx)
//	...
//	client, err := redlock.Dial(urls)
//
// It is for tests that need real servers, such as those of a deployment or of another language.
// Package locktest/nodetest of quorumlock needs no Docker, starts at once, and has more faults.
package lockcontainers

import (
	"context"
	"errors"
	"fmt"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	count = 3 // nodes
	port  = "6379/tcp"
)

// Container is three nodes, each a container of its own. The methods of the embedded
// [testcontainers.Container], which is the first node, act on that one alone. Only Terminate ends
// all of them. The zero value is not usable.
type Container struct {
	testcontainers.Container
	others []testcontainers.Container
}

// Run starts three nodes of an image of Redis or Valkey, one after the other. They write each
// command to their disk before they answer, so that a node keeps its locks when it is stopped and
// started again. opts customize each of the three containers. [testcontainers.WithCmdArgs] adds
// settings, such as "--maxmemory", "64mb". With "--requirepass" or another user, give redlock.Dial
// the credentials.
//
// Run returns an error, before it starts any container, for options that three containers cannot
// share: a name, and files from a Reader. If a container does not start, or ctx is done, Run returns
// an error and the containers that it created, if any: terminate them.
func Run(ctx context.Context, img string, opts ...testcontainers.ContainerCustomizer) (*Container, error) {
	requests := make([]testcontainers.GenericContainerRequest, count)
	for i := range requests {
		var err error
		if requests[i], err = request(img, opts); err != nil {
			return nil, fmt.Errorf("lockcontainers: %w", err)
		}
	}
	var c *Container
	for i, r := range requests {
		node, err := testcontainers.GenericContainer(ctx, r)
		switch {
		case node == nil:
		case c == nil:
			c = &Container{Container: node}
		default:
			c.others = append(c.others, node)
		}
		if err != nil {
			return c, fmt.Errorf("lockcontainers: node %d of %d: %w", i+1, count, err)
		}
	}
	return c, nil
}

// request returns the request for one of the containers.
func request(img string, opts []testcontainers.ContainerCustomizer) (testcontainers.GenericContainerRequest, error) {
	r := testcontainers.GenericContainerRequest{
		ContainerRequest: testcontainers.ContainerRequest{
			Image:        img,
			ExposedPorts: []string{port},
			Cmd:          []string{"redis-server", "--protected-mode", "no", "--save", "", "--appendonly", "yes", "--appendfsync", "always"},
			// An image may lack the programs of the internal check. The log has its result.
			WaitingFor: wait.ForAll(wait.ForLog("Ready to accept connections"), wait.ForListeningPort(port).SkipInternalCheck()),
		},
		Started: true,
	}
	for _, opt := range opts {
		if err := opt.Customize(&r); err != nil {
			return r, err
		}
	}
	if r.Name != "" {
		return r, fmt.Errorf("WithName %q: the nodes are %d containers, which cannot share a name: leave it out", r.Name, count)
	}
	for _, f := range r.Files {
		if f.Reader != nil {
			return r, fmt.Errorf("WithFiles %q: the nodes are %d containers, which cannot share a Reader: use HostFilePath", f.ContainerFilePath, count)
		}
	}
	return r, nil
}

// Containers returns the container of each node, for example to stop one. A node that is stopped
// and started again has its data, and another port: see ConnectionStrings.
func (c *Container) Containers() []testcontainers.Container {
	return append([]testcontainers.Container{c.Container}, c.others...)
}

// ConnectionStrings returns the URL of each node, such as redis://localhost:32768, for
// redlock.Dial. It returns an error if ctx is done, or if a node is not running: Docker gives a
// node a new port at each start.
func (c *Container) ConnectionStrings(ctx context.Context) ([]string, error) {
	urls := make([]string, 0, count)
	for i, n := range c.Containers() {
		url, err := n.PortEndpoint(ctx, port, "redis")
		if err != nil {
			return nil, fmt.Errorf("lockcontainers: node %d of %d: %w", i+1, count, err)
		}
		urls = append(urls, url)
	}
	return urls, nil
}

// Terminate stops and removes all nodes, with their data. It returns the errors of all of them.
func (c *Container) Terminate(ctx context.Context, opts ...testcontainers.TerminateOption) error {
	var failed []error
	for _, n := range c.Containers() {
		failed = append(failed, n.Terminate(ctx, opts...))
	}
	return errors.Join(failed...)
}
