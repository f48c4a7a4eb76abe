package options

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/quorumlock/quorumlock/internal/errs"
)

// The environment variables that name nodes.
const (
	NodesVariable     = "QUORUMLOCK_NODES"
	NodesFileVariable = "QUORUMLOCK_NODES_FILE"
)

// SplitNodes returns the URLs in a comma-separated list. Its errors begin with where and do not
// repeat the parts: after a comma in a password, a part may be secret.
func SplitNodes(where, list string) ([]string, error) {
	urls := strings.Split(list, ",")
	for i, u := range urls {
		urls[i] = strings.TrimSpace(u)
		if strings.Count(urls[i], "://") > 1 {
			return nil, errs.Misusef("%s: part %d of %d has several URLs: separate them by commas", where, i+1, len(urls))
		}
		if !isNodeURL(urls[i]) {
			return nil, errs.Misusef("%s: part %d of %d is no redis://, rediss:// or unix:// URL: separate the URLs by commas, and write %%2C for a comma in a password",
				where, i+1, len(urls))
		}
	}
	return urls, nil
}

// maxNodesFile is the largest part of a node file that is read, in bytes.
const maxNodesFile = 1 << 20

// readNodes returns the URLs in a file, one a line. It skips empty lines and lines that begin with
// #. ends reports whether the last line has an end. Its errors begin with where, and contain no URL.
func readNodes(where, file string) (urls []string, ends bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", where, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxNodesFile))
	if err != nil {
		return nil, false, fmt.Errorf("%s: %s cannot be read: %w", where, file, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !isNodeURL(line):
			return nil, false, errs.Misusef("%s: line %d of %s is no redis://, rediss:// or unix:// URL: write one URL a line", where, n, file)
		default:
			urls = append(urls, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, false, fmt.Errorf("%s: %s cannot be read: %w", where, file, err)
	}
	if len(urls) == 0 {
		return nil, false, errs.Misusef("%s: %s names no nodes: write one URL a line", where, file)
	}
	return urls, bytes.HasSuffix(text, []byte("\n")), nil
}

// isNodeURL reports whether s is one URL, as far as its scheme shows.
func isNodeURL(s string) bool {
	scheme, rest, ok := strings.Cut(s, "://")
	return ok && !strings.Contains(rest, "://") && (scheme == "redis" || scheme == "rediss" || scheme == "unix")
}
