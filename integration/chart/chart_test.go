// Package chart renders contrib/helm/quorumlock-nodes with Helm, and decodes each object as the API
// of Kubernetes does. Package nodefiles runs servers with what it renders.
package chart

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
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
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	dir      = "../../contrib/helm/quorumlock-nodes"
	password = "a-long-random-password" // nodefiles has it, too
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

// objects are those of a rendering.
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

// small has what the chart needs, and other values.
func small(t *testing.T, others ...values) values {
	t.Helper()
	v := values{"users": acl(t, "--also", "check")}
	for _, o := range others {
		maps.Copy(v, o)
	}
	return v
}

// large has every value.
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

// If a rendering changes on purpose: go test -update.
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

// Each pod is a server with an address, a machine and a disk of its own. No zone, update or drain
// takes a quorum away.
func TestNodesAreIndependent(t *testing.T) {
	for _, n := range []int{3, 5, 7} {
		o := quorumlock.objects(t, small(t, values{"nodes": n}))
		spec := o.nodes.Spec
		pod := spec.Template
		mayBeDown := n - (n/2 + 1)
		if int(*spec.Replicas) != n || len(o.services) != n || spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() != 1 {
			t.Errorf("%d nodes: %d pods, %d Services, update %+v", n, *spec.Replicas, len(o.services), spec.UpdateStrategy)
		}
		var urls []string
		for i, s := range o.services {
			name := fmt.Sprintf("%s-%d", o.nodes.Name, i)
			port := s.Spec.Ports[0]
			if s.Name != name || !s.Spec.PublishNotReadyAddresses || port.TargetPort.StrVal != pod.Spec.Containers[0].Ports[0].Name ||
				!reflect.DeepEqual(s.Spec.Selector, map[string]string{"statefulset.kubernetes.io/pod-name": name}) {
				t.Errorf("%d nodes: a Service does not lead to %s: %+v", n, name, s)
			}
			urls = append(urls, fmt.Sprintf("redis://USER:PASSWORD@%s.locks.svc:%d", name, port.Port))
		}
		if line := "\nQUORUMLOCK_NODES=" + strings.Join(urls, ",") + "\n"; !strings.Contains(o.notes, line) {
			t.Errorf("%d nodes: want%sin the notes\n%s", n, line, o.notes)
		}
		machines := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		zones := pod.Spec.TopologySpreadConstraints
		if len(machines) != 1 || machines[0].TopologyKey != corev1.LabelHostname {
			t.Errorf("%d nodes may share a machine: %+v", n, machines)
		}
		if len(zones) != 1 || zones[0].TopologyKey != corev1.LabelTopologyZone || int(zones[0].MaxSkew) != mayBeDown ||
			*zones[0].MinDomains < 100 || zones[0].WhenUnsatisfiable != corev1.DoNotSchedule {
			t.Errorf("%d nodes: a zone may have more than %d: %+v", n, mayBeDown, zones)
		}
		for what, selector := range map[string]map[string]string{
			"the StatefulSet":         spec.Selector.MatchLabels,
			"the PodDisruptionBudget": o.budget.Spec.Selector.MatchLabels,
			"the NetworkPolicy":       o.network.Spec.PodSelector.MatchLabels,
			"the rule for machines":   machines[0].LabelSelector.MatchLabels,
			"the rule for zones":      zones[0].LabelSelector.MatchLabels,
		} {
			if !reflect.DeepEqual(selector, pod.Labels) {
				t.Errorf("%d nodes: %s selects %v, and the pods have %v", n, what, selector, pod.Labels)
			}
		}
	}
}

func TestMountedVolumesExist(t *testing.T) {
	own := small(t, values{"users": "", "usersSecret": "own"})
	for _, v := range []values{small(t), large(t), own} {
		o := quorumlock.objects(t, v)
		spec := o.nodes.Spec.Template.Spec
		from := map[string]string{spec.Volumes[0].Name: spec.Volumes[0].ConfigMap.Name, o.nodes.Spec.VolumeClaimTemplates[0].Name: "a disk"}
		for _, volume := range spec.Volumes[1:] {
			from[volume.Name] = volume.Secret.SecretName
		}
		want := map[string]string{"config": o.config.Name, "users": o.secret.Name, "data": "a disk"}
		if name, _ := v["usersSecret"].(string); name != "" {
			want["users"] = name
		}
		if name, _ := v["tlsSecret"].(string); name != "" {
			want["tls"] = name
		}
		mounted := make(map[string]string)
		for _, m := range spec.Containers[0].VolumeMounts {
			mounted[m.Name] = from[m.Name]
		}
		if !reflect.DeepEqual(mounted, want) {
			t.Errorf("mounted are %v, want %v", mounted, want)
		}
	}
}

// Updates and drains wait until a restarted node grants locks again.
func TestReadyWaitsForTheRestartGuard(t *testing.T) {
	for _, guard := range []int{0, 1, 30, 3601} {
		o := quorumlock.objects(t, small(t, values{"restartGuardSeconds": guard}))
		probe := o.nodes.Spec.Template.Spec.Containers[0].ReadinessProbe
		wait := int((probe.SuccessThreshold - 1) * probe.PeriodSeconds)
		if least := guard + guard/4 + 20; wait < least || wait > least+5 {
			t.Errorf("with a guard of %d s, a pod is ready after %d s, want about %d", guard, wait, least)
		}
		if line := fmt.Sprintf("\nQUORUMLOCK_RESTART_GUARD=%ds\n", guard); strings.Contains(o.notes, line) != (guard > 0) {
			t.Errorf("with a guard of %d s, the notes are\n%s", guard, o.notes)
		}
	}
}

// The pods restart for changes of redis.conf and users, and not for those of the chart's version or
// of the clients.
func TestRestarts(t *testing.T) {
	before := quorumlock.objects(t, small(t)).nodes.Spec
	newer := release{name: "quorumlock", version: "9.9.9"}
	after := newer.objects(t, small(t, values{"clients": large(t)["clients"]})).nodes.Spec
	if !reflect.DeepEqual(before, after) {
		t.Errorf("another version, or other clients, change the StatefulSet:\n%+v\n%+v", before, after)
	}
	for _, v := range []values{{"memoryMi": 1028}, {"users": acl(t)}, {"tlsSecret": "x"}} {
		after := quorumlock.objects(t, small(t, v)).nodes.Spec
		if reflect.DeepEqual(before.Template.Annotations, after.Template.Annotations) {
			t.Errorf("%v changes no annotation of the pods", v)
		}
	}
}

// The users have the rules of the tool, whatever its flags.
func TestUsersAreThoseOfTheTool(t *testing.T) {
	const chart = "user default off\nuser probe on nopass resetkeys resetchannels -@all +ping\n"
	var users string
	for _, flags := range [][]string{
		nil,
		{"--user", "a", "--prefix", "a:", "--restart-guard"},
		{"--user", "b", "--prefix", "{b}:*?[", "--restart-guard", "--also", "check,list,database", "--server", "6.0"},
	} {
		users += acl(t, flags...)
		o := quorumlock.objects(t, values{"users": users, "restartGuardSeconds": 30})
		if got := o.secret.StringData["users.acl"]; got != chart+users {
			t.Errorf("the users are\n%s\nand want\n%s", got, chart+users)
		}
	}
}

// A wrong value ends in an error that names it and the fix.
func TestWrongValuesAreRefused(t *testing.T) {
	line := acl(t, "--user", "a", "--prefix", "a:")
	for _, tt := range []struct {
		values values
		want   []string
	}{
		{values{"nodes": 4}, []string{"'/nodes'", "one of 3, 5, 7"}},
		{values{"nodes": "3"}, []string{"'/nodes'", "one of 3, 5, 7"}},
		{values{"replicas": 3}, []string{"'replicas' not allowed"}},
		{values{"users": ""}, []string{"users: is empty: use --set-file users=FILE", "quorumlock acl"}},
		{values{"users": "user locker on >secret ~* +@all"}, []string{"users: line 1 is not from quorumlock acl --password-file"}},
		{values{"users": line + "\n" + line}, []string{"users: line 2 is not"}},
		{values{"users": strings.ReplaceAll(line, "user a ", "user probe ")}, []string{"users: line 1", "--user NAME"}},
		{values{"users": line, "restartGuardSeconds": 30}, []string{"users: line 1 lacks ~quorumlock_age, and restartGuardSeconds is 30", "acl --restart-guard"}},
		{values{"usersSecret": "x"}, []string{"usersSecret: users is set, too: leave one of them empty"}},
		{values{"restartGuardSeconds": "30s"}, []string{"'/restartGuardSeconds'", "want integer"}},
		{values{"restartGuardSeconds": -1}, []string{"'/restartGuardSeconds'", "want 0"}},
		{values{"storageGi": 2}, []string{"storageGi: 2 is less than three times memoryMi (1024): use 3 or more"}},
		{values{"memoryMi": 1 << 30}, []string{"memoryMi (1073741824): use 3145728 or more"}},
		{values{"memoryMi": "1Gi"}, []string{"'/memoryMi'", "want integer"}},
		{values{"cpuMilli": 0}, []string{"'/cpuMilli'", "want 1"}},
		{values{"image": ""}, []string{"'/image'"}},
		{values{"zones": 3}, []string{"'/zones'", "want boolean"}},
		{values{"clients": []any{}}, []string{"'/clients'", "want 1"}}, // for Kubernetes, it means everybody
		{values{"clients": []any{values{}}}, []string{"'/clients/0'", "want 1"}},
		{values{"clients": []any{values{"pods": 1}}}, []string{"'/clients/0'", "'pods' not allowed"}},
	} {
		_, err := quorumlock.render(t, small(t, tt.values))
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", tt.values, err, want)
			}
		}
	}
	for _, name := range []string{strings.Repeat("x", 48), "1st", "a.b"} {
		_, err := release{name: name}.render(t, small(t))
		if want := "the release's name " + name + ": use a letter"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the release %s: %v", name, err)
		}
	}
}

// The schema knows each value of values.yaml, and values.yaml each of the schema.
func TestEveryValueIsExplained(t *testing.T) {
	c, err := loader.Load(dir)
	must(t, err)
	var schema struct{ Properties map[string]any }
	must(t, yaml.Unmarshal(c.Schema, &schema))
	delete(schema.Properties, "global") // of charts that contain this one
	want := slices.Sorted(maps.Keys(schema.Properties))
	if got := slices.Sorted(maps.Keys(c.Values)); !slices.Equal(got, want) {
		t.Errorf("values.yaml has %q, and the schema %q", got, want)
	}
	if got := slices.Sorted(maps.Keys(large(t))); !slices.Equal(got, want) {
		t.Errorf("the large rendering has %q of %q", got, want)
	}
}
