// Package chart renders contrib/helm/quorumlock-nodes with Helm. It decodes the objects of the chart
// and of contrib/jobs as the API of Kubernetes does. Package nodefiles runs servers with the
// renderings.
package chart

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	dir      = "../../contrib/helm/quorumlock-nodes"
	password = "a-long-random-password" // package nodefiles uses it, too
)

var update = flag.Bool("update", false, "write the renderings to testdata")

type values = map[string]any

// release is a rendering of the chart.
type release struct {
	name    string
	version string // of the chart; empty: that of Chart.yaml
}

// render returns the objects and the notes, in the order of the files.
func (r release) render(t *testing.T, v values) (string, error) {
	t.Helper()
	c, err := loader.Load(dir)
	must(t, err)
	if r.version != "" {
		c.Metadata.Version = r.version
	}
	all, err := util.ToRenderValues(c, v, common.ReleaseOptions{Name: r.name, Namespace: "locks", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if body := strings.TrimSpace(files[name]); body != "" {
			fmt.Fprintf(&text, "---\n# %s\n%s\n", filepath.Base(name), strings.TrimPrefix(body, "---\n"))
		}
	}
	return text.String(), err
}

// objects has the decoded objects of a rendering.
type objects struct {
	config   corev1.ConfigMap
	secret   corev1.Secret
	services []corev1.Service
	budget   policyv1.PodDisruptionBudget
	network  networkingv1.NetworkPolicy
	nodes    appsv1.StatefulSet
	notes    string
}

// decode refuses fields that the API does not know.
func decode(t *testing.T, text string) objects {
	t.Helper()
	var o objects
	o.notes, text, _ = strings.Cut(strings.TrimPrefix(text, "---\n# NOTES.txt\n"), "---\n")
	for _, document := range strings.Split(text, "\n---\n") {
		var kind metav1.TypeMeta
		must(t, yaml.Unmarshal([]byte(document), &kind))
		service := new(corev1.Service)
		to, ok := map[metav1.TypeMeta]any{
			{APIVersion: "v1", Kind: "ConfigMap"}:                       &o.config,
			{APIVersion: "v1", Kind: "Secret"}:                          &o.secret,
			{APIVersion: "v1", Kind: "Service"}:                         service,
			{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:      &o.budget,
			{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}: &o.network,
			{APIVersion: "apps/v1", Kind: "StatefulSet"}:                &o.nodes,
		}[kind]
		if !ok {
			t.Fatalf("an object of the kind %+v:\n%s", kind, document)
		}
		if err := yaml.UnmarshalStrict([]byte(document+"\n"), to); err != nil {
			t.Fatalf("%v, in\n%s", err, document)
		}
		if kind.Kind == "Service" {
			o.services = append(o.services, *service)
		}
	}
	return o
}

// objects returns the objects of a release with these values.
func (r release) objects(t *testing.T, v values) objects {
	t.Helper()
	text, err := r.render(t, v)
	must(t, err)
	return decode(t, text)
}

var quorumlock = release{name: "quorumlock"}

var printed = make(map[string]string) // by flags

// acl returns what the tool prints for a user.
func acl(t *testing.T, flags ...string) string {
	t.Helper()
	key := fmt.Sprintf("%q", flags)
	if line, ok := printed[key]; ok {
		return line
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", ".", "acl", "--password-file", "-"}, flags...)...)
	cmd.Dir = "../../cmd/quorumlock"
	cmd.Env = append(cmd.Environ(), "GOWORK=", "GOFLAGS=")
	cmd.Stdin = strings.NewReader(password)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(t, err)
	printed[key] = string(out)
	return string(out)
}

// small sets the required values, and then those of others.
func small(t *testing.T, others ...values) values {
	t.Helper()
	v := values{"users": acl(t, "--also", "check")}
	for _, o := range others {
		maps.Copy(v, o)
	}
	return v
}

// large sets every value.
func large(t *testing.T) values {
	return values{
		"nodes":               5,
		"users":               acl(t, "--also", "check", "--restart-guard") + acl(t, "--user", "a", "--prefix", "a:", "--restart-guard"),
		"usersSecret":         "",
		"restartGuardSeconds": 30,
		"tlsSecret":           "quorumlock-tls",
		"image":               "registry.example.com/redis:8.0.6",
		"cpuMilli":            2000,
		"memoryMi":            4096,
		"storageGi":           20,
		"storageClass":        "fast",
		"zones":               false,
		"clients":             []any{values{"namespaceSelector": values{"matchLabels": values{"team": "payments"}}}, values{"ipBlock": values{"cidr": "10.0.0.0/8"}}},
		"nodeSelector":        values{"pool": "locks"},
		"tolerations":         []any{values{"key": "locks", "operator": "Exists", "effect": "NoSchedule"}},
		"priorityClassName":   "high",
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// If a rendering changes on purpose: go test -count=1 -update.
func TestRenderings(t *testing.T) {
	for name, v := range map[string]values{"small": small(t), "large": large(t)} {
		text, err := quorumlock.render(t, v)
		must(t, err)
		decode(t, text)
		file := filepath.Join("testdata", name+".yaml")
		if *update {
			must(t, os.WriteFile(file, []byte(text), 0o644))
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != text {
			t.Errorf("%s: %v; want\n%s", file, err, text)
		}
	}
}

func TestHelmFindsNoFault(t *testing.T) {
	for _, v := range []values{small(t), large(t)} {
		for _, m := range lint.RunAll(dir, v, "locks").Messages {
			if m.Severity > support.InfoSev {
				t.Error(m)
			}
		}
	}
}

// The tests of cmd/quorumlock run the commands of these files.
func TestJobsAreObjectsOfKubernetes(t *testing.T) {
	for file, objects := range map[string][]any{"cronjob.yaml": {new(corev1.Secret), new(batchv1.CronJob)}, "deployment.yaml": {new(appsv1.Deployment)}} {
		text, err := os.ReadFile("../../contrib/jobs/" + file)
		must(t, err)
		documents := strings.Split(string(text), "\n---\n")
		if len(documents) != len(objects) {
			t.Fatalf("%s has %d objects, want %d", file, len(documents), len(objects))
		}
		for i, o := range objects {
			if err := yaml.UnmarshalStrict([]byte(documents[i]), o); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
