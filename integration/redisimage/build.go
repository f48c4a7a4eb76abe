package redisimage

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"
)

// programs are the programs of the image: the servers, and the programs that the tests and the
// health check of docker-compose.yml run inside a container. Each is at the same path in every
// image.
var programs = []string{
	"/usr/local/bin/redis-server", "/usr/local/bin/redis-cli",
	"/bin/sh", "/bin/cat", "/bin/cp", "/bin/grep", "/bin/ls", "/bin/mkdir", "/bin/rm",
}

// settings make the image like the public one: any client may connect, and data is on a volume.
var settings = []string{
	"ENV PATH=/usr/local/bin:/usr/bin:/bin",
	"WORKDIR /data",
	"VOLUME /data",
	"EXPOSE 6379",
	`CMD ["redis-server", "--protected-mode", "no"]`,
}

// contents are the files of an image, taken from this machine.
type contents struct {
	files  []byte // as a tar
	origin string // which redis-server it is
}

// Build makes an image of that name from the redis-server of this machine, and returns its origin.
func Build(ctx context.Context, docker *client.Client, name string) (origin string, err error) {
	c, err := read()
	if err != nil {
		return "", err
	}
	return c.origin, c.load(ctx, docker, name)
}

// read gathers the programs and the libraries that they are linked with.
func read() (*contents, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("containers need programs of Linux, and this machine has %s", runtime.GOOS)
	}
	installed, err := find(programs)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	written := make(map[string]bool)
	add := func(path, from string) error {
		if written[path] {
			return nil
		}
		written[path] = true
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return write(w, &tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755}, content)
	}
	for n, path := range programs {
		libraries, err := linkedWith(installed[n])
		err = errors.Join(err, add(path, installed[n]))
		for _, l := range libraries {
			err = errors.Join(err, add(l, l))
		}
		if err != nil {
			return nil, err
		}
	}
	err = errors.Join(
		write(w, &tar.Header{Name: "/etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0:root:/data:/bin/sh\n")),
		write(w, &tar.Header{Name: "/etc/group", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:\n")),
		write(w, &tar.Header{Name: "/data/", Typeflag: tar.TypeDir, Mode: 0o755}, nil),
		write(w, &tar.Header{Name: "/tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil),
		w.Close())
	if err != nil {
		return nil, err
	}
	return &contents{files: b.Bytes(), origin: strings.TrimSpace(installed[0] + " " + version(installed[0]))}, nil
}

// write adds one file. All have the same time, so that the same files make the same tar.
func write(w *tar.Writer, h *tar.Header, content []byte) error {
	h.Name = strings.TrimPrefix(h.Name, "/")
	h.Size = int64(len(content))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// name is a name that no image with other content has.
func (c *contents) name() string {
	h := sha256.New()
	h.Write([]byte(strings.Join(settings, "\n")))
	h.Write(c.files)
	return fmt.Sprintf("quorumlock-redis:local-%x", h.Sum(nil)[:6])
}

// load gives the image to the daemon under that name.
func (c *contents) load(ctx context.Context, docker *client.Client, name string) error {
	daemon, err := docker.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return err
	}
	if daemon.Os != runtime.GOOS || daemon.Arch != runtime.GOARCH {
		return fmt.Errorf("the Docker daemon runs %s/%s, and this machine is %s/%s", daemon.Os, daemon.Arch, runtime.GOOS, runtime.GOARCH)
	}
	progress, err := docker.ImageImport(ctx, client.ImageImportSource{Source: bytes.NewReader(c.files), SourceName: "-"}, name,
		client.ImageImportOptions{Message: "from " + c.origin, Changes: settings})
	if err != nil {
		return err
	}
	defer progress.Close() //nolint:errcheck // it is only read
	for messages := json.NewDecoder(progress); ; {
		var m jsonstream.Message
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.Error != nil {
			return m.Error
		}
	}
}
