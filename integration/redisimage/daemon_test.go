package redisimage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/moby/moby/client"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// daemon is a fake Docker daemon: it has some images, can pull others, and keeps imported ones.
type daemon struct {
	present  map[string]bool
	registry map[string]bool
	arch     string            // of its containers; that of this machine if empty
	pulling  func() io.Reader  // the report of a pull from the registry
	pulls    []string          // that it was asked for
	imported map[string]string // file names, a line each, by image
}

func newDaemon(present ...string) *daemon {
	d := &daemon{present: make(map[string]bool), registry: make(map[string]bool), imported: make(map[string]string)}
	for _, image := range present {
		d.present[image] = true
	}
	d.pulling = func() io.Reader { return strings.NewReader(`{"status":"Pulling"}{"status":"Downloaded"}`) }
	return d
}

// chooser returns a Chooser at the daemon that appends its reports to said.
func (d *daemon) chooser(t *testing.T, named string, said *[]string) Chooser {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // no login
	docker, err := client.New(client.WithHTTPClient(&http.Client{Transport: d}), client.WithAPIVersion("1.44"))
	must(t, err)
	return Chooser{Docker: docker, Named: named, Public: "public:1", Say: func(line string) { *said = append(*said, line) }}
}

func (d *daemon) RoundTrip(req *http.Request) (*http.Response, error) {
	status, body := d.serve(req)
	// Like a connection, it ends with the request.
	if c, ok := body.(interface{ CloseWithError(error) error }); ok {
		context.AfterFunc(req.Context(), func() { _ = c.CloseWithError(req.Context().Err()) })
	}
	return &http.Response{
		StatusCode: status, Body: io.NopCloser(body), Request: req,
		Header: http.Header{"Content-Type": {"application/json"}},
	}, nil
}

func (d *daemon) serve(req *http.Request) (status int, body io.Reader) {
	path, query := req.URL.Path, req.URL.Query()
	_, path, _ = strings.Cut(path, "/v1.44/")
	image, inspects := strings.CutSuffix(strings.TrimPrefix(path, "images/"), "/json")
	switch {
	case path == "version":
		arch := runtime.GOARCH
		if d.arch != "" {
			arch = d.arch
		}
		return http.StatusOK, strings.NewReader(fmt.Sprintf(`{"Os":"linux","Arch":%q}`, arch))
	case inspects && d.present[image]:
		return http.StatusOK, strings.NewReader(`{}`)
	case inspects:
		return http.StatusNotFound, strings.NewReader(`{"message":"No such image"}`)
	case query.Get("fromImage") != "":
		image = strings.TrimPrefix(query.Get("fromImage"), "docker.io/library/") + ":" + query.Get("tag")
		d.pulls = append(d.pulls, image)
		if !d.registry[image] {
			return http.StatusInternalServerError, strings.NewReader(`{"message":"no such host"}`)
		}
		d.present[image] = true
		return http.StatusOK, d.pulling()
	case query.Get("fromSrc") == "-":
		files, err := names(req.Body)
		if err != nil {
			return http.StatusBadRequest, strings.NewReader(`{"message":"bad tar"}`)
		}
		image = query.Get("repo")
		d.present[image], d.imported[image] = true, files
		return http.StatusOK, strings.NewReader(`{"status":"sha256:0"}`)
	}
	return http.StatusNotImplemented, strings.NewReader(fmt.Sprintf(`{"message":"%s %s"}`, req.Method, req.URL))
}

func names(files io.Reader) (string, error) {
	var b strings.Builder
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.String(), nil
		} else if err != nil {
			return "", err
		}
		b.WriteString(h.Name + "\n")
	}
}
