//go:build linux

package redisimage

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// install makes this a machine that has the programs of an image, or those of them that are given.
func install(t *testing.T, paths ...string) {
	t.Helper()
	some, err := exec.LookPath("true")
	must(t, err)
	bin := t.TempDir()
	for _, path := range paths {
		must(t, os.Symlink(some, filepath.Join(bin, filepath.Base(path))))
	}
	t.Setenv("PATH", bin)
}

func TestOrderOfChoice(t *testing.T) {
	const asked, public, built = "asked:1", "public:1", "quorumlock-redis:local-"
	for name, c := range map[string]struct {
		named     string
		present   []string
		registry  []string
		installed bool
		want      string   // a prefix of the image's name; empty if there is none
		pulls     []string // in this order
	}{
		"the one that is asked for, before all": {
			named: asked, present: []string{asked, public}, registry: []string{asked, public}, installed: true, want: asked},
		"the one that is asked for, pulled": {
			named: asked, present: []string{public}, registry: []string{asked}, installed: true, want: asked, pulls: []string{asked}},
		"no other than the one that is asked for": {
			named: asked, present: []string{public}, registry: []string{public}, installed: true, pulls: []string{asked}},
		"the public one, without a pull": {
			present: []string{public}, registry: []string{public}, installed: true, want: public},
		"the public one, pulled before any is built": {
			registry: []string{public}, installed: true, want: public, pulls: []string{public}},
		"built here": {
			installed: true, want: built, pulls: []string{public}},
		"none": {
			pulls: []string{public}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(c.present...)
			for _, image := range c.registry {
				d.registry[image] = true
			}
			if c.installed {
				install(t, programs...)
			} else {
				install(t)
			}
			var said []string
			image, err := d.chooser(t, c.named, &said).Choose(t.Context())
			if c.want == "" && err == nil {
				t.Errorf("%s, want an error", image)
			} else if c.want != "" && (err != nil || !strings.HasPrefix(image, c.want) || !d.present[image]) {
				t.Errorf("%q, %v, want %s, present", image, err, c.want)
			}
			if !slices.Equal(d.pulls, c.pulls) {
				t.Errorf("pulled %q, want %q", d.pulls, c.pulls)
			}
			if (len(said) == 0) != (len(c.pulls) == 0) {
				t.Errorf("said %q, want to hear of what is not as usual, and of nothing else", said)
			}
		})
	}
}

func TestWhatIsBuiltIsUsedAgainUntilTheProgramsChange(t *testing.T) {
	install(t, programs...)
	d := newDaemon()
	var said []string
	choose := func(says string) string {
		t.Helper()
		image, err := d.chooser(t, "", &said).Choose(t.Context())
		must(t, err)
		if last := said[len(said)-1]; !strings.Contains(last, says+" "+image+" from ") {
			t.Errorf("said %q, want %s %s", last, says, image)
		}
		return image
	}
	first := choose("built")
	if again := choose("using"); again != first {
		t.Errorf("%s, and then %s", first, again)
	}
	server, err := exec.LookPath("redis-server")
	must(t, err)
	other, err := os.ReadFile(server)
	must(t, err)
	must(t, os.Remove(server))
	must(t, os.WriteFile(server, append(other, "another version"...), 0o700))
	if upgraded := choose("built"); upgraded == first {
		t.Errorf("still %s after redis-server was replaced", first)
	}
}

func TestAnImageHasTheProgramsAndWhatTheyAreLinkedWith(t *testing.T) {
	install(t, programs...)
	d := newDaemon()
	image, err := d.chooser(t, "", new([]string)).Choose(t.Context())
	must(t, err)
	libraries, err := linkedWith(filepath.Join(os.Getenv("PATH"), "sh"))
	must(t, err)
	files := strings.Fields(d.imported[image])
	for _, want := range slices.Concat(programs, libraries, []string{"/etc/passwd", "/data/", "/tmp/"}) {
		if !slices.Contains(files, strings.TrimPrefix(want, "/")) {
			t.Errorf("%s is missing from %q", want, files)
		}
	}
}

func TestAnErrorSaysWhyNoImageIsBuilt(t *testing.T) {
	script := func(t *testing.T) {
		install(t, programs[1:]...)
		err := os.WriteFile(filepath.Join(os.Getenv("PATH"), "redis-server"), []byte("#!/bin/sh\n"), 0o700)
		must(t, err)
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T)
		arch    string
		says    string
	}{
		"no redis-server":         {func(t *testing.T) { install(t, programs[1:]...) }, "", "redis-server: not installed"},
		"nothing":                 {func(t *testing.T) { install(t) }, "", "redis-server, redis-cli, sh, cat, cp, grep, ls, mkdir, rm: not installed"},
		"a script":                {script, "", "redis-server is no program that a container could run"},
		"another kind of machine": {func(t *testing.T) { install(t, programs...) }, "elsewhere", "the Docker daemon runs linux/elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			c.prepare(t)
			d := newDaemon()
			d.arch = c.arch
			_, err := d.chooser(t, "", new([]string)).Choose(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "public:1 cannot be pulled") {
				t.Errorf("%v, want it to say %q, and that the image cannot be pulled", err, c.says)
			}
		})
	}
}
