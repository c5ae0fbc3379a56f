// Command typed drives client-go's typed clients against a cache: discovery, writes (which they send as
// protobuf), optimistic locking, events and leader election on a lease. It exits 0 if all of it works.
//
//	typed <base URL, scope included>
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	namespace   = "typed"
	retryPeriod = 200 * time.Millisecond
)

func main() {
	config := &rest.Config{Host: os.Args[1]}
	client, err := kubernetes.NewForConfig(config)
	for _, step := range []func(context.Context, *kubernetes.Clientset) error{discover, write, record, elect} {
		if err == nil {
			err = step(context.Background(), client)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func discover(_ context.Context, client *kubernetes.Clientset) error {
	groups, resources, failed, err := client.Discovery().(*discovery.DiscoveryClient).GroupsAndMaybeResources()
	if err != nil || len(failed) > 0 {
		return fmt.Errorf("discovery: %v, failed %v", err, failed)
	}
	if len(groups.Groups) == 0 || resources == nil {
		return fmt.Errorf("discovery is not aggregated: %v", groups.Groups)
	}
	_, err = client.Discovery().ServerVersion()
	return err
}

func write(ctx context.Context, client *kubernetes.Clientset) error {
	roles := client.RbacV1().ClusterRoles()
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "typed-", Labels: map[string]string{"tier": "gold"}}, Rules: rules}
	created, err := roles.Create(ctx, role, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if created.Labels["tier"] != "gold" || len(created.Rules) != 1 || created.Rules[0].Resources[0] != "pods" {
		return fmt.Errorf("created something else: %v", created)
	}
	stale := created.DeepCopy()
	created.Labels["tier"] = "silver"
	if _, err := roles.Update(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	stale.Labels["tier"] = "bronze"
	if _, err := roles.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("update of an old version: %v", err)
	}
	other := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}
	if err := roles.Delete(ctx, created.Name, other); !apierrors.IsConflict(err) {
		return fmt.Errorf("delete of another uid: %v", err)
	}
	own := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(created.UID))}
	if err := roles.Delete(ctx, created.Name, own); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if _, err := roles.Get(ctx, created.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("get after delete: %v", err)
	}
	return nil
}

func record(ctx context.Context, client *kubernetes.Clientset) error {
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, home, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	now := metav1.NowMicro()
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: namespace}, EventTime: now, Reason: "Because"}
	created, err := client.CoreV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("event: %w", err)
	}
	if created.EventTime.UnixMicro() != now.UnixMicro() || created.InvolvedObject.Name != "p" {
		return fmt.Errorf("recorded something else: %v", created)
	}
	return nil
}

// elect becomes the leader, renews the lease at least once, and gives it up.
func elect(ctx context.Context, client *kubernetes.Clientset) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	leases := client.CoordinationV1().Leases(namespace)
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "lock", Namespace: namespace},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
	}
	renewed := make(chan error, 1)
	lead := func(ctx context.Context) {
		defer stop()
		watching, err := leases.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			renewed <- err
			return
		}
		defer watching.Stop()
		for event := range watching.ResultChan() {
			lease, ok := event.Object.(*coordinationv1.Lease)
			if ok && lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time) {
				// Its answer may be on its way still; client-go 0.32 does not release what it has not heard of.
				time.Sleep(retryPeriod / 2)
				renewed <- nil
				return
			}
		}
		renewed <- fmt.Errorf("the watch ended before the lease was renewed")
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: func() {}},
	})
	select {
	case err := <-renewed:
		if err != nil {
			return fmt.Errorf("leader election: %w", err)
		}
	default:
		return fmt.Errorf("leader election: never led")
	}
	lease, err := leases.Get(context.Background(), "lock", metav1.GetOptions{})
	if err == nil && *lease.Spec.HolderIdentity != "" {
		err = fmt.Errorf("the lease was not released: %v", lease.Spec)
	}
	return err
}
