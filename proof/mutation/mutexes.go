package mutation

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/proof/lockorder"
)

// mutexes has the files of the library with a mutex, and its level in package lockorder. No node of
// the simulation is a cluster, so the mutex of shards.go is never locked there.
var mutexes = map[string]reflect.Type{
	"internal/client/alarms.go":         reflect.TypeFor[lockorder.Leaf](),
	"internal/client/session.go":        reflect.TypeFor[lockorder.Session](),
	"internal/client/life.go":           reflect.TypeFor[lockorder.Leaf](),
	"internal/client/permits.go":        reflect.TypeFor[lockorder.Leaf](),
	"internal/client/pending.go":        reflect.TypeFor[lockorder.Leaf](),
	"internal/client/admission.go":      reflect.TypeFor[lockorder.Leaf](),
	"internal/client/health.go":         reflect.TypeFor[lockorder.Leaf](),
	"internal/client/latch.go":          reflect.TypeFor[lockorder.Leaf](),
	"internal/client/lock.go":           reflect.TypeFor[lockorder.Leaf](),
	"internal/client/renewals.go":       reflect.TypeFor[lockorder.Leaf](),
	"internal/client/redisson.go":       reflect.TypeFor[lockorder.Leaf](),
	"internal/client/subscriptions.go":  reflect.TypeFor[lockorder.Subscriptions](),
	"internal/transport/hub.go":         reflect.TypeFor[lockorder.Hub](),
	"internal/transport/lane.go":        reflect.TypeFor[lockorder.Leaf](),
	"internal/transport/pooled.go":      reflect.TypeFor[lockorder.Leaf](),
	"internal/transport/movingslots.go": reflect.TypeFor[lockorder.Leaf](),
	"internal/transport/servers.go":     reflect.TypeFor[lockorder.Leaf](),
	"internal/transport/shards.go":      reflect.TypeFor[lockorder.Leaf](),
	"internal/transport/sight.go":       reflect.TypeFor[lockorder.Leaf](),
	"internal/transport/inorder.go":     reflect.TypeFor[lockorder.Leaf](),
}

var mutex = regexp.MustCompile(`\bsync\.(?:RW)?Mutex\b`)

// TakesMutexesInOrder plays seeds of a simulation with the mutexes of the library replaced by those
// of package lockorder, and fails if one is locked out of order. A plain run only compares the
// table with the code.
func TakesMutexesInOrder(t *testing.T, pkg string, seeds int) {
	root, files := root(t), make(map[string]string)
	for _, folder := range []string{"internal/client", "internal/transport"} {
		sources, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil || len(sources) == 0 {
			t.Fatalf("no sources in %s: %v", folder, err)
		}
		for _, path := range sources {
			name := folder + "/" + filepath.Base(path)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			n, kind := len(mutex.FindAll(text, -1)), mutexes[name]
			switch {
			case strings.HasSuffix(name, "_test.go"), n == 0 && kind == nil:
			case n != 1 || kind == nil:
				t.Errorf("%s has %d mutexes: want one that package lockorder knows", name, n)
			default:
				files[name] = ordered(t, string(text), kind.Name())
			}
		}
	}
	if len(files) != len(mutexes) {
		t.Fatalf("%d of %d files with mutexes were found", len(files), len(mutexes))
	}
	if *planted == "" {
		t.Skip("-planted all builds the library with the mutexes of package lockorder; the table was compared with the code")
	}
	bin, err := build(t, pkg, files)
	if err != nil {
		t.Fatal(err)
	}
	if f := run(t, bin, pkg, 0, seeds, 5*time.Minute); f.by != "" {
		t.Errorf("seed %d: %s: %s", f.seed, f.by, f.text)
	}
}

// ordered returns the text of a file with its mutex replaced by one of package lockorder.
func ordered(t *testing.T, text, kind string) string {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	at := int(f.Name.End()) - 1
	text = mutex.ReplaceAllString(text[at:], "lockorder.Mutex[lockorder."+kind+"]")
	return "package " + f.Name.Name + "\n\nimport \"github.com/quorumlock/quorumlock/proof/lockorder\"\n" + text + "\nvar _ sync.Locker\n"
}
