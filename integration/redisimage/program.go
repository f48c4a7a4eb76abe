package redisimage

import (
	"debug/elf"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// find returns the installed programs with the base names of paths. An error names the missing
// ones.
func find(paths []string) ([]string, error) {
	installed := make([]string, len(paths))
	var missing []string
	for n, path := range paths {
		at, err := exec.LookPath(filepath.Base(path))
		if err != nil {
			missing = append(missing, filepath.Base(path))
		}
		installed[n] = at
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s: not installed on this machine", strings.Join(missing, ", "))
	}
	return installed, nil
}

// linkedWith returns the paths of the shared libraries of a program, its loader among them. It asks
// the loader itself, which looks for the same paths in the container.
func linkedWith(program string) ([]string, error) {
	loader, err := loaderOf(program)
	if err != nil || loader == "" {
		return nil, err
	}
	out, err := exec.Command(loader, "--list", program).Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list %s: %w", loader, program, err)
	}
	libraries := []string{loader}
	for line := range strings.Lines(string(out)) { // name => path (address), or path (address)
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("%s lacks a library: %s", program, strings.TrimSpace(line))
		}
		for _, field := range strings.Fields(line) {
			if filepath.IsAbs(field) {
				libraries = append(libraries, field)
				break
			}
		}
	}
	return libraries, nil
}

// loaderOf returns the program that loads the libraries of this one, or "" if this one has none.
func loaderOf(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("%s is no program that a container could run: %w", program, err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", nil
}

// version returns the version that redis-server prints, or "".
func version(program string) string {
	out, _ := exec.Command(program, "--version").Output() // it is only to be shown
	for _, field := range strings.Fields(string(out)) {
		if v, ok := strings.CutPrefix(field, "v="); ok {
			return v
		}
	}
	return ""
}
