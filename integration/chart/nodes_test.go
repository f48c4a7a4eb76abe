package chart

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

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

// Changes of redis.conf and of users restart the pods. Changes of the chart's version or of the
// clients do not.
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
