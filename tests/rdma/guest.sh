# What runs in the virtual machine. Each stage says "GUEST: <stage> passed" or "… failed".
cd /tmp
stages=$(cat /stages)
want() { case ",$stages," in *",$1,"*) true ;; *) false ;; esac; }
report() {  # stage, exit status
  if [ "$2" = 0 ]; then echo "GUEST: $1 passed ($(cut -d' ' -f1 /proc/uptime) s after boot)"; else echo "GUEST: $1 failed"; fi
}
ibv_devinfo | grep -E 'hca_id|state|active_mtu'

if want conformance; then
  /tests/conformance --duration=true --no-colors=true
  report conformance $?
fi

if want rails; then
  /tests/rails --duration=true --no-colors=true
  report rails $?
fi
