package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"net/netip"
	"strconv"
	"testing"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// docker talks to the daemon that has the containers.
var docker *client.Client

// image is the default image of the servers.
var image string

// setup is the configuration of a container.
type setup struct {
	image   string
	command []string // that of the image if empty
	env     []string
	files   map[string]string // by path; readable and executable for every user
}

type setting func(*setup)

func withImage(name string) setting { return func(s *setup) { s.image = name } }

func withCommand(command ...string) setting { return func(s *setup) { s.command = command } }

func withEnv(env string) setting { return func(s *setup) { s.env = append(s.env, env) } }

func withFile(path, content string) setting { return func(s *setup) { s.files[path] = content } }

// create makes a container, not started. A port of this machine leads to its Redis.
func create(ctx context.Context, port int, settings []setting) (id string, err error) {
	s := &setup{image: image, files: make(map[string]string)}
	for _, set := range settings {
		set(s)
	}
	redisPort := network.MustParsePort("6379/tcp")
	made, err := docker.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{
			Image: s.image, Cmd: s.command, Env: s.env,
			Labels:       map[string]string{runLabel: thisRun},
			ExposedPorts: network.PortSet{redisPort: {}},
		},
		HostConfig: &container.HostConfig{PortBindings: network.PortMap{redisPort: {{
			HostIP:   netip.MustParseAddr("127.0.0.1"),
			HostPort: strconv.Itoa(port),
		}}}},
	})
	if err != nil || len(s.files) == 0 {
		return made.ID, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for path, content := range s.files {
		if err := w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}); err != nil {
			return "", err
		}
		if _, err := io.WriteString(w, content); err != nil {
			return "", err
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	_, err = docker.CopyToContainer(ctx, made.ID, client.CopyToContainerOptions{DestinationPath: "/", Content: &b})
	return made.ID, err
}

// exec runs a command in the server's container, which must succeed.
func (s *server) exec(t *testing.T, command ...string) {
	t.Helper()
	ctx := patiently(t)
	made, err := docker.ExecCreate(ctx, s.id, client.ExecCreateOptions{Cmd: command, AttachStdout: true, AttachStderr: true})
	must(t, err)
	attached, err := docker.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	must(t, err)
	defer attached.Close()
	var out bytes.Buffer
	_, err = stdcopy.StdCopy(&out, &out, attached.Reader) // until it has ended
	must(t, err)
	end, err := docker.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	must(t, err)
	if end.ExitCode != 0 {
		t.Fatalf("%q in the container: status %d: %s", command, end.ExitCode, out.String())
	}
}

// ip returns the address by which other containers reach the server.
func (s *server) ip(t *testing.T) string {
	t.Helper()
	now, err := docker.ContainerInspect(patiently(t), s.id, client.ContainerInspectOptions{})
	must(t, err)
	if on := now.Container.NetworkSettings.Networks[bridge]; on != nil {
		return on.IPAddress.String()
	}
	return "" // it is cut off
}

// log returns the server's log.
func (s *server) log() string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := docker.ContainerLogs(ctx, s.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return err.Error()
	}
	defer r.Close() //nolint:errcheck // it is only read
	var b bytes.Buffer
	if _, err = stdcopy.StdCopy(&b, &b, r); err != nil {
		b.WriteString(err.Error())
	}
	return b.String()
}
